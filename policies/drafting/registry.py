"""Drafters by name."""

from __future__ import annotations

from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.drafting.stand import Stand

__all__ = ["drafter"]


def drafter(name: str, *, vocabulary_size: int = 1 << 31, is_shared: bool = False) -> Drafter | None:
    """Return a new drafter, None for "none".

    Args:
        name: "none", "stand" or "prompt_lookup".
        vocabulary_size: token ids are below it.
        is_shared: whether a replica will share its statistics.

    Raises:
        ConfigError: an unknown name.
    """
    if name == "none":
        return None
    if name == "stand":
        return Stand(vocabulary_size=vocabulary_size, records_deltas=is_shared)
    if name == "prompt_lookup":
        return PromptLookup()
    raise ConfigError(f"drafter: {name!r} is unknown; choose none, stand or prompt_lookup")
