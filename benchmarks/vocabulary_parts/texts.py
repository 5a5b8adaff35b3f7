"""Function calling and named entities as a small target can do them: worked examples, then a question, and the answer in JSON.

Answers for training and counting, and prompts that these never see. A prompt is to be read raw, an answer ends where a line does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tts_orch.atomic_file import write_atomically
from tts_orch.json_lines import json_line
from tts_orch.tasks.object_lines import read_objects

__all__ = ["END", "NARROW", "held_out_folder", "texts", "training_folder"]

NARROW: Final[Mapping[str, str]] = {"bfcl": "tools", "ner_wnut17": "entities"}
"""Files of held-out prompts, with the names of the files for training in the same domain."""
END: Final = "\n"
"""Ends an answer."""

_CALLS: Final = 700
_DIALOGUES: Final = 240
"""Lines of bfcl and of toolcall_chat for training; entities have splits of their own."""
_EXAMPLES: Final = ("bfcl-simple_python_1", "bfcl-parallel_76")
_N_SENTENCES: Final = 4

Row = Mapping[str, Any]


class _Text(NamedTuple):
    """A line of a file: an id, what the target reads, and what it should say."""

    id: str
    prompt: str
    answer: str


def training_folder(out: Path) -> Path:
    """Return where the files for training are."""
    return out / "texts" / "training"


def held_out_folder(out: Path) -> Path:
    """Return where the held-out prompts are."""
    return out / "texts" / "held_out"


def texts(arguments: argparse.Namespace) -> None:
    """Write the files, from those of --data."""
    calls = [*_calls(_rows(arguments.data, "bfcl"))]
    turns = [*_dialogue_turns(_rows(arguments.data, "toolcall_chat")[:_DIALOGUES])]
    _write(training_folder(arguments.out) / "tools.jsonl", "tool", [*calls[:_CALLS], *turns])
    _write(held_out_folder(arguments.out) / "bfcl.jsonl", "tool", calls[_CALLS:])
    sentences = _rows(arguments.data, "ner_wnut17")
    examples = sentences[:_N_SENTENCES]
    for path, split in (
        (training_folder(arguments.out) / "entities.jsonl", ("train", "dev")),
        (held_out_folder(arguments.out) / "ner_wnut17.jsonl", ("test",)),
    ):
        chosen = [row for row in sentences if row["split"] in split]
        _write(path, "ner", [_sentence(row, examples) for row in chosen])


def _rows(folder: Path, name: str) -> list[Row]:
    return read_objects(folder / f"{name}.jsonl.gz", dict)


def _write(path: Path, domain: str, lines: Iterable[_Text]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = [json_line({"id": one.id, "domain": domain, "prompt": one.prompt, "answer": one.answer}) for one in lines]
    write_atomically(path, "".join(content))
    print(f"{path}: {len(content)} lines", flush=True)


def _calls(rows: Sequence[Row]) -> Iterator[_Text]:
    """Yield requests that one answer full of calls answers."""
    examples = "".join(_worked(_request(row), _wanted_calls(row)) for row in rows if row["id"] in _EXAMPLES)
    for row in rows:
        yield _Text(row["id"], examples + _request(row), _answer(_wanted_calls(row)))


def _dialogue_turns(rows: Sequence[Row]) -> Iterator[_Text]:
    """Yield what an assistant that can call functions says in a dialogue, turn by turn."""
    labels = {"user": "Request", "tool_call": "Calls", "tool": "Result", "assistant": "Answer"}
    for row in rows:
        if not row["functions"]:
            continue
        said = _functions(row)
        for turn, message in enumerate(row["messages"]):
            label, content = labels[message["role"]], message["content"]
            if message["role"] == "tool_call":
                content = f"[{content}]"
            if message["role"] in ("tool_call", "assistant"):
                yield _Text(f"{row['id']}-{turn}", f"{said}{label}:", _answer(content))
            said += f"{label}: {content}\n"


def _request(row: Row) -> str:
    return f"{_functions(row)}Request: {row['prompt']}\nCalls:"


def _functions(row: Row) -> str:
    """Return a line a function: its name, its parameters, and the first sentence about it."""
    lines = []
    for function in row["functions"]:
        parameters = ", ".join(function["parameters"].get("properties", {}))
        lines.append(f"{function['name']}({parameters}): {function['description'].partition('. ')[0]}\n")
    return f"Functions:\n{''.join(lines)}"


def _wanted_calls(row: Row) -> str:
    """Return the calls that are accepted, each parameter with the first of its accepted values, left out where that is ""."""
    calls = [
        {
            "name": name,
            "arguments": {key: values[0] for key, values in arguments.items() if values[:1] not in ([], [""])},
        }
        for call in json.loads(row["answer"])
        for name, arguments in call.items()
    ]
    return json.dumps(calls, ensure_ascii=False)


def _sentence(row: Row, examples: Sequence[Row]) -> _Text:
    before = "".join(_worked(_question(one), one["answer"]) for one in examples)
    return _Text(row["id"], before + _question(row), _answer(row["answer"]))


def _question(row: Row) -> str:
    return f"Sentence: {row['prompt']}\nEntities:"


def _worked(question: str, answer: str) -> str:
    return f"{question}{_answer(answer)}{END}"


def _answer(text: str) -> str:
    """Return an answer as it follows a prompt: all in one line."""
    return f" {' '.join(text.split())}{END}"
