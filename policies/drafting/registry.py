"""Drafters by name."""

from __future__ import annotations

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.drafting.stand import Stand

__all__ = ["make_drafter"]


def make_drafter(
    config: DraftingConfig, *, vocabulary_size: int = 1 << 31, is_shared: bool = False
) -> Drafter | None:
    """Return a new drafter, None for "none".

    Args:
        config: which one, and its settings.
        vocabulary_size: token ids are below it.
        is_shared: whether a replica will share its statistics.
    """
    match config.drafter:
        case "none":
            return None
        case "stand":
            return Stand(vocabulary_size=vocabulary_size, records_deltas=is_shared)
        case "prompt_lookup":
            return PromptLookup()
    raise NotImplementedError(config.drafter)
