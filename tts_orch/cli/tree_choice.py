"""The static draft tree that a command drafts by, looked at before any work begins."""

from __future__ import annotations

import logging

from tts_orch.config import DraftingConfig

__all__ = ["check_tree"]

logger = logging.getLogger(__name__)


def check_tree(config: DraftingConfig) -> None:
    """Read the draft tree, and say so where it has fewer nodes than were asked for.

    Raises:
        ConfigError: its file cannot be used.
    """
    if config.drafter != "stand" or config.node_budget:
        return
    from tts_orch.policies.drafting.tree_file import DEFAULT_TREE, read_learned_tree  # loads NumPy

    path = config.draft_tree or DEFAULT_TREE
    n_nodes = read_learned_tree(path).n_nodes
    if "max_nodes" in config.model_fields_set and n_nodes < config.max_nodes:
        logger.warning("max_nodes: %s has only %d nodes, and no more are drafted", path, n_nodes)
