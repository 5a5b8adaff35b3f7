"""From settings to the drafter of a target: one without training, trained ones, or all of them composed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.registry import make_drafter

if TYPE_CHECKING:
    from tts_orch.drafters.pool_client import PoolLink
    from tts_orch.engine.target import Target

__all__ = ["load_drafter"]


def load_drafter(
    config: DraftingConfig, target: Target, *, is_shared: bool, pool: PoolLink | None = None
) -> Drafter | None:
    """Return the drafter that the settings ask for, None if they ask for none.

    Under rejection verification the members of a composition draft deterministically, so that the union of their trees is exact.

    Args:
        config: who drafts, and how several work together.
        target: they draft for it.
        is_shared: whether a replica will share what an n-gram table learns.
        pool: hosts the trained drafters; without one they are loaded here.

    Raises:
        ConfigError: a drafter cannot be read, or is for another target.
    """
    if config.verification == "rejection" and len(config.members) > 1:
        config = config.model_copy(update={"draft_sampling": "deterministic"})
    members: dict[str, Drafter] = {}
    if config.drafter != "neural":
        untrained = make_drafter(config, vocabulary_size=target.vocab_size, is_shared=is_shared)
        if untrained is not None:
            members[config.drafter] = untrained
    members.update(_trained(config, target, pool))
    if len(members) < 2:
        return next(iter(members.values()), None)
    from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
    from tts_orch.policies.routing.registry import make_routing

    return ComposedDrafter(members, make_routing(config, list(members)))


def _trained(config: DraftingConfig, target: Target, pool: PoolLink | None) -> dict[str, Drafter]:
    if not config.drafters:
        return {}
    if pool is not None:
        return {name: pool.drafter(name, config.max_nodes) for name in config.drafters}
    from tts_orch.drafters.checkpoint import load_network
    from tts_orch.drafters.neural_drafter import NeuralDrafter
    from tts_orch.drafters.target_facts import target_facts

    facts = target_facts(target)
    return {name: NeuralDrafter(load_network(folder, facts), config) for name, folder in config.drafters.items()}
