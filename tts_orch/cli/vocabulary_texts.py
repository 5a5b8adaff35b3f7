"""The texts that draft vocabularies are counted over: those of `tts-orch drafter train`, and the candidates of finished runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from tts_orch.cli.drafter_texts import sequences_of
from tts_orch.errors import ConfigError, RunFolderError
from tts_orch.replay.recovery import FinishedRun
from tts_orch.tasks.prompts import render
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.drafters.training_sequences import (
    TrainingSequence,
    choose_sequences,
    is_held_out,
    n_training_tokens,
)
from tts_orch.training.drafters.vocabulary_settings import VocabularyConfig
from tts_orch.vocabulary.ranked_tokens import count_tokens

__all__ = ["CountedTexts", "counted_texts"]


@dataclass(frozen=True, slots=True)
class CountedTexts:
    """Texts with answers.

    Attributes:
        counted: those that are counted,
        held_out: and those that are not.
        n_tokens: counted answer tokens by file or run folder.
    """

    counted: list[TrainingSequence]
    held_out: list[TrainingSequence]
    n_tokens: dict[str, int]

    @property
    def n_held_out_tokens(self) -> int:
        """Answer tokens that are held out."""
        return sum(one.n_laws for one in self.held_out)

    def counts(self, vocab_size: int) -> NDArray[np.int64]:
        """Return how often each token, `[vocab_size]`, is to be drafted in the counted texts."""
        return count_tokens(map(_answer, self.counted), vocab_size)

    def held_out_counts(self, vocab_size: int) -> NDArray[np.int64]:
        """Return the same for the others."""
        return count_tokens(map(_answer, self.held_out), vocab_size)


def counted_texts(config: VocabularyConfig, base: BaseFiles, bar: Progress) -> CountedTexts:
    """Read the texts of every file and every run.

    Raises:
        OrchestratorError: one cannot be read, or has not enough to count.
    """
    texts, n_tokens = [], Counter[str]()
    for part in config.data:
        with closing(sequences_of(config, part, base)) as sequences:
            shown = _shown(sequences, part.file.name, part.tokens, bar)
            found = choose_sequences(shown, part.tokens, config.max_held_out, group=1)
        texts += _enough(found, part.file, part.tokens)
        n_tokens[str(part.file)] += n_training_tokens(found)
    for folder in config.runs:
        shown = _shown(_candidates(folder, config, base), folder.name, None, bar)
        found = choose_sequences(shown, None, config.max_held_out, group=1)
        texts += _enough(found, folder, None)
        n_tokens[str(folder)] += n_training_tokens(found)
    return CountedTexts(
        [one for one in texts if not one.is_held_out], [one for one in texts if one.is_held_out], dict(n_tokens)
    )


def _shown(
    texts: Iterable[TrainingSequence], name: str, n_tokens: int | None, bar: Progress
) -> Iterator[TrainingSequence]:
    """Yield the texts, and show how many of the wanted tokens there are."""
    task = bar.add_task(f"texts of {name}", total=n_tokens)
    for text in texts:
        bar.advance(task, text.n_laws)
        yield text


def _enough(texts: list[TrainingSequence], place: Path, wanted: int | None) -> list[TrainingSequence]:
    n_tokens = n_training_tokens(texts)
    if n_tokens < (wanted or 1):
        raise ConfigError(
            f"data: {place} has {n_tokens} answer tokens to count, not {wanted or 'any'}; take fewer, or more texts"
        )
    return [one for one in texts if one.n_laws]


def _candidates(folder: Path, config: VocabularyConfig, base: BaseFiles) -> Iterator[TrainingSequence]:
    """Yield the candidates of a run; those of one problem are all held out, or none of them is."""
    run = FinishedRun.read(folder)
    if run.manifest.target["weights"] != base.weights_id:
        raise RunFolderError(f"{folder}: decoded by another target; count runs of this target alone")
    for problem_id, problem in run.problems.items():
        prompt = render(problem, base.tokenizer, run.config.template, run.config)
        for candidate in run.candidates[problem_id]:
            token_ids = np.concatenate([prompt, np.array(candidate.token_ids, np.int32)])
            yield TrainingSequence(token_ids, len(prompt), len(token_ids), is_held_out(prompt, config.held_out))


def _answer(text: TrainingSequence) -> NDArray[np.int32]:
    """Return the tokens that a head learns to draft."""
    return text.token_ids[text.first_law + 1 : text.length]
