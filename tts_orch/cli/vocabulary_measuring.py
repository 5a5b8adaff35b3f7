"""Sizes of a draft vocabulary measured with a head on this device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.progress import Progress

from tts_orch.cli.recovering import target_of
from tts_orch.drafters.checkpoint import read_head
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.eagle_network import head_network
from tts_orch.drafters.target_facts import target_facts
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.errors import ConfigError
from tts_orch.replay.draft_sizes import SizeSpeed, WrittenText, measured_sizes
from tts_orch.training.drafters.training_sequences import TrainingSequence
from tts_orch.training.drafters.vocabulary_settings import VocabularyConfig
from tts_orch.vocabulary.ranked_tokens import RankedTokens

__all__ = ["sizes_measured"]


def sizes_measured(
    config: VocabularyConfig,
    folder: Path,
    ranked: RankedTokens,
    sizes: Sequence[int],
    held_out: Sequence[TrainingSequence],
    bar: Progress,
) -> list[SizeSpeed]:
    """Draft held-out texts with a head trimmed to each size.

    Args:
        config: how much is drafted, and how.
        folder: of the head.
        ranked: the tokens; a size takes the first ones.
        sizes: to try.
        held_out: texts.
        bar: shows the progress.

    Raises:
        UserError: the head or the target cannot be used, or there is no text to draft.
    """
    texts = _written(held_out, config.replay_tokens)
    if not texts:
        raise ConfigError("held_out: no text is left to measure on; give more texts, or a larger share")
    target = target_of(config.engine)
    facts = target_facts(target)

    def network(size: int) -> HeadNetwork:
        head = read_head(folder)
        return head_network(head if size == len(ranked.order) else trimmed_head(head, ranked.vocabulary(size)), facts)

    networks = {size: network(size) for size in sizes}
    task = bar.add_task("sizes on held-out texts", total=len(texts) * len(sizes))
    return measured_sizes(networks, texts, target, config.engine, lambda: bar.advance(task))


def _written(texts: Sequence[TrainingSequence], n_tokens: int) -> list[WrittenText]:
    """Return texts until there are enough tokens, the last one cut."""
    lengths = np.array([text.length - text.n_prompt for text in texts], np.int64)
    taken = np.minimum(lengths, n_tokens - (np.cumsum(lengths) - lengths))
    return [
        WrittenText(text.token_ids[: text.n_prompt], text.token_ids[text.n_prompt : text.n_prompt + n])
        for text, n in zip(texts, taken.tolist(), strict=True)
        if n > 0
    ]
