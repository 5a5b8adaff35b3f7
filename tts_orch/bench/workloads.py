"""What the benchmark decodes: public problem files by name, a file of the user, or text that never repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tts_orch.errors import ConfigError
from tts_orch.records import IntArray, Problem
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import Tokenizer, render

__all__ = ["PUBLIC_WORKLOADS", "RANDOM_TEXT", "Prompt", "find_problems", "random_prompts", "render_prompts"]

PUBLIC_WORKLOADS: Final = ("gsm8k_test", "aime2024", "math500", "humaneval", "mt_bench")
"""Reasoning, competition mathematics, mathematics, code, chat."""
RANDOM_TEXT: Final = "random_text"
"""Prompts of random tokens, sampled at a high temperature: nothing that an n-gram table could know."""

_SUFFIXES: Final = (".jsonl.gz", ".jsonl")
_RANDOM_PROMPT_LENGTH: Final = 64


@dataclass(frozen=True, slots=True)
class Prompt:
    """One problem as the target reads it.

    Attributes:
        problem_id: key of seeds and statistics.
        token_ids: `[n]` the prompt.
    """

    problem_id: str
    token_ids: IntArray


def find_problems(name: str, folder: Path | None) -> Path:
    """Return the problem file of a workload: a path, or the name of a file in the data folder without its suffix.

    Raises:
        ConfigError: there is no such file.
    """
    candidates = [Path(name), *(folder / f"{name}{suffix}" for suffix in _SUFFIXES if folder)]
    for path in candidates:
        if path.is_file():
            return path
    where = f"in {folder}" if folder else "here; --data names the folder of problem files"
    raise ConfigError(f"workload: no file {name} or {name}.jsonl[.gz] {where}")


def render_prompts(problems: Sequence[Problem], tokenizer: Tokenizer) -> list[Prompt]:
    """Return the problems with the target's own template."""
    return [Prompt(problem.id, render(problem, tokenizer)) for problem in problems]


def read_prompts(name: str, folder: Path | None, n: int, tokenizer: Tokenizer) -> list[Prompt]:
    """Return the first `n` prompts of a workload."""
    return render_prompts(read_problems(find_problems(name, folder))[:n], tokenizer)


def random_prompts(n: int, vocabulary_size: int) -> list[Prompt]:
    """Return `n` prompts of uniformly random tokens, always the same ones."""
    generator = np.random.default_rng(0)
    return [
        Prompt(f"{RANDOM_TEXT}-{i}", generator.integers(0, vocabulary_size, _RANDOM_PROMPT_LENGTH).astype(np.int32))
        for i in range(n)
    ]
