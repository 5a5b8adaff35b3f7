"""The product's default drafter for toy models."""

from __future__ import annotations

from tests.toys import VOCABULARY_SIZE
from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_file import default_tree

__all__ = ["new_stand"]


def new_stand(*, records_deltas: bool = False, **settings: object) -> Stand:
    """Return an untaught STAND with a small table; `settings` are those of `DraftingConfig`."""
    config = DraftingConfig(table_entries=1 << 14, **settings)
    return Stand(config, default_tree(), vocabulary_size=VOCABULARY_SIZE, records_deltas=records_deltas)
