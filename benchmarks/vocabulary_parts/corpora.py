"""The corpora that draft vocabularies are counted over: general texts, function calling, named entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from tts_orch.records import IntArray
from tts_orch.training.drafters.given_answers import read_given_answers, shuffled
from vocabulary_parts.texts import training_folder

__all__ = ["CORPORA", "FIXED", "answers"]

CORPORA: Final = ("general", "tools", "entities")
FIXED: Final = "fixed"
"""The most frequent tokens of the general corpus, a quarter of the target's: a list that is the same for all domains."""

_GENERAL: Final[Mapping[str, str]] = {
    "gsm8k_train": "solution",
    "chat_oasst1": "answer",
    "chat_self_instruct": "answer",
    "chat_dolly": "answer",
    "code_instruct": "answer",
}
"""Files of --data with the field of the answer."""


def answers(corpus: str, data: Path, out: Path, tokenizer: Any) -> list[IntArray]:
    """Return the tokens of all answers, each with the one that ends a text, in an order that looks like chance.

    Args:
        corpus: one of `CORPORA`.
        data: folder of public files.
        out: folder of the benchmark.
        tokenizer: the target's.
    """
    return [
        np.asarray([*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id], np.int32)
        for text in shuffled(_texts(corpus, data, out), 0)
    ]


def _texts(corpus: str, data: Path, out: Path) -> Sequence[str]:
    if corpus == "general":
        files = {data / f"{name}.jsonl.gz": field for name, field in _GENERAL.items()}
    else:
        files = {training_folder(out) / f"{corpus}.jsonl": "answer"}
    given = chain.from_iterable(read_given_answers(path, field) for path, field in files.items())
    return [one.answer for one in given]
