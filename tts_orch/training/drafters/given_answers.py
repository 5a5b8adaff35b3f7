"""Files of prompts as token sequences, with the answers that the files give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np

from tts_orch.errors import ProblemError
from tts_orch.records import IntArray, Problem
from tts_orch.seeds import stream_seed
from tts_orch.tasks.object_lines import read_objects
from tts_orch.tasks.problems import messages_of
from tts_orch.tasks.prompts import render
from tts_orch.training.drafters.training_sequences import TrainingSequence, is_held_out

__all__ = ["Encoding", "GivenAnswer", "given_sequences", "read_given_answers", "shuffled"]

_T = TypeVar("_T")
_CONVERSATION: Final = "messages"
_OF_THE_MODEL: Final = ("assistant", "tool_call")


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """One line of a file, or one of the model's turns in it.

    Attributes:
        problem: the prompt, with what was said before.
        answer: its text.
    """

    problem: Problem
    answer: str


@dataclass(frozen=True, slots=True)
class Encoding:
    """How prompts and answers become tokens.

    Attributes:
        tokenizer: the target's.
        template: as in `tts-orch run`.
        max_length: tokens of a sequence; the rest is cut off.
        held_out: share of the prompts that are for the evaluation alone.
    """

    tokenizer: Any
    template: Literal["auto", "raw", "chat"]
    max_length: int
    held_out: float

    def prompt(self, problem: Problem) -> IntArray:
        """Return the tokens of a prompt."""
        return render(problem, self.tokenizer, self.template)

    def is_held_out(self, problem: Problem) -> bool:
        """Say whether a prompt is for the evaluation alone; a conversation is so as a whole, by how it begins."""
        return is_held_out(self.prompt(_opening(problem)), self.held_out)

    def sequence(self, problem: Problem, answer: Sequence[int]) -> TrainingSequence:
        """Return prompt and answer as one sequence."""
        prompt = self.prompt(problem)
        token_ids = np.concatenate([prompt, np.asarray(answer, np.int32)])[: self.max_length]
        return TrainingSequence(token_ids, len(prompt), len(token_ids), self.is_held_out(problem))


def read_given_answers(path: Path, answer_field: str, rows: slice = slice(None)) -> list[GivenAnswer]:
    """Read prompts with answers.

    A line has the texts `prompt` and `answer_field`; of others only `id` is read. Where the field is `messages` it has a
    conversation, of which every turn of the model is an answer to all before it.

    Args:
        path: the file.
        answer_field: where a line has its answer.
        rows: which of its lines.

    Raises:
        ProblemError: the file cannot be read or has no line, or a line is malformed: `file:line: what; what to do`.
    """
    parse = _turns if answer_field == _CONVERSATION else _given_answer
    answers = [*chain.from_iterable(read_objects(path, lambda fields: parse(fields, answer_field))[rows])]
    if not answers:
        raise ProblemError(
            f"{path}: nothing to learn from; give a JSON object with `prompt` and `{answer_field}` on every line"
        )
    return answers


def given_sequences(answers: Iterable[GivenAnswer], encoding: Encoding) -> Iterator[TrainingSequence]:
    """Yield every answer as a sequence that ends with the end-of-text token."""
    end = encoding.tokenizer.eos_token_id
    for given in answers:
        answer = encoding.tokenizer(given.answer, add_special_tokens=False)["input_ids"]
        yield encoding.sequence(given.problem, [*answer, *([] if end is None else [end])])


def shuffled(values: Sequence[_T], seed: int) -> list[_T]:
    """Return the values in an order that the seed fixes."""
    order = np.random.default_rng(stream_seed(seed, 0, "order of texts")).permutation(len(values))
    return [values[i] for i in order]


def _opening(problem: Problem) -> Problem:
    """Return a conversation up to the first turn of the user."""
    turns = problem.messages or ()
    roles = [turn["role"] for turn in turns]
    return replace(problem, messages=turns[: roles.index("user") + 1]) if "user" in roles else problem


def _turns(fields: Mapping[str, Any], answer_field: str) -> list[GivenAnswer]:
    """Return the model's turns of a conversation; calls of tools are turns of the assistant's."""
    turns = [{**turn, "role": "assistant"} if turn["role"] in _OF_THE_MODEL else turn for turn in messages_of(fields)]
    answers = [
        GivenAnswer(Problem(str(fields.get("id", "")), messages=tuple(turns[:place])), turn["content"])
        for place, turn in enumerate(turns)
        if place and turn["role"] == "assistant" and turn["content"]
    ]
    if not answers:
        raise ValueError(f"no turn of the assistant in `{answer_field}`; choose another field for answers")
    return answers


def _given_answer(fields: Mapping[str, Any], answer_field: str) -> list[GivenAnswer]:
    """Check one line; a ValueError says what is wrong and what to do."""
    prompt, answer = fields.get("prompt"), fields.get(answer_field)
    if not isinstance(prompt, str) or not prompt:
        raise ValueError("no `prompt`; give the text of the question")
    if not isinstance(answer, str) or not answer:
        near = sorted(name for name, value in fields.items() if isinstance(value, str) and name not in ("id", "prompt"))
        raise ValueError(f"no text in `{answer_field}`; choose the answer's field among {', '.join(near) or 'others'}")
    return [GivenAnswer(Problem(str(fields.get("id", "")), prompt), answer)]
