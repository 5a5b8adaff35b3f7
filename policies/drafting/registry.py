"""Drafters by name."""

from __future__ import annotations

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.draft_tree import Drafter

__all__ = ["make_drafter"]


def make_drafter(config: DraftingConfig, *, vocabulary_size: int, is_shared: bool = False) -> Drafter | None:
    """Return a new drafter that needs no training, None without one; each is loaded only where it is wanted.

    Args:
        config: which one, and its settings.
        vocabulary_size: token ids are below it.
        is_shared: whether a replica will share its statistics.

    Raises:
        ConfigError: the draft tree's file cannot be used.
    """
    match config.drafter:
        case "none" | "neural":
            return None
        case "stand":
            from tts_orch.policies.drafting.stand import Stand
            from tts_orch.policies.drafting.tree_file import default_tree, read_tree

            shape = read_tree(config.draft_tree) if config.draft_tree else default_tree()
            return Stand(config, shape, vocabulary_size=vocabulary_size, records_deltas=is_shared)
        case "prompt_lookup":
            from tts_orch.policies.drafting.prompt_lookup import PromptLookup

            return PromptLookup()
        case "anpd":
            from tts_orch.policies.drafting.anpd import Anpd

            return Anpd()
        case "token_recycling":
            from tts_orch.policies.drafting.token_recycling import TokenRecycling

            return TokenRecycling(vocabulary_size)
        case "suffix_automaton":
            from tts_orch.policies.drafting.sam_decoding import SamDecoding
            from tts_orch.policies.drafting.token_recycling import TokenRecycling

            return SamDecoding(TokenRecycling(vocabulary_size))
        case "suffix_tries":
            from tts_orch.policies.drafting.suffix_tries import SuffixTries

            return SuffixTries()
