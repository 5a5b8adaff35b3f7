"""From settings to the drafter of a target: one without training, trained ones, or all of them composed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.registry import make_drafter

if TYPE_CHECKING:
    from tts_orch.drafters.pool_link import PoolLink
    from tts_orch.engine.target import Target

__all__ = ["load_drafter", "pool_loader", "trained_loader", "with_member"]


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
    load = trained_loader(config, target)
    return {name: load(folder) for name, folder in config.drafters.items()}


def trained_loader(config: DraftingConfig, target: Target) -> Callable[[Path], Drafter]:
    """Return what loads a trained drafter from its folder; it keeps no more of the target than drafters share with it.

    What it returns raises ConfigError if a drafter cannot be read, or is for another target.
    """
    from tts_orch.drafters.checkpoint import load_network
    from tts_orch.drafters.neural_drafter import NeuralDrafter
    from tts_orch.drafters.target_facts import target_facts

    facts = target_facts(target)
    return lambda folder: NeuralDrafter(load_network(folder, facts), config)


def pool_loader(config: EngineConfig) -> Callable[[Path], Drafter]:
    """Return what loads trained drafters in a process of their own; all that they compile is compiled.

    Raises:
        TargetError: the target cannot be found, read or served.
    """
    from tts_orch.engine.target import load_target
    from tts_orch.policies.drafting.warm_up import warm_up

    target = load_target(config)
    warm_up(config)  # else the first draft would take longer than anybody waits for it
    return trained_loader(config, target)


def with_member(drafter: Drafter, config: DraftingConfig, name: str, member: Drafter | None) -> Drafter:
    """Return a composition that has one more member, another one of that name, or (None) that member no more.

    Args:
        drafter: as `load_drafter` or this function returned it; its other members are taken over as they are.
        config: as it was given there.
        name: the member's.
        member: a trained drafter.

    Raises:
        ConfigError: nobody would be left, or the drafter drew drafts, which a union under rejection verification may not.
    """
    from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
    from tts_orch.policies.routing.registry import make_routing

    if isinstance(drafter, ComposedDrafter):
        members = dict(drafter.members)
    elif config.verification == "rejection" and config.drafter == "stand" and config.draft_sampling == "stochastic":
        raise ConfigError(f"drafters: stand drafts alone and draws at random; start a run with {name} beside it")
    else:
        members = {config.members[0]: drafter}
    if member is not None:
        members[name] = member
    else:
        members.pop(name, None)
    if not members:
        raise ConfigError(f"drafters: {name} is the only one; add another before it goes")
    routing = make_routing(config, list(members))
    return (
        drafter.changed(members, routing) if isinstance(drafter, ComposedDrafter) else ComposedDrafter(members, routing)
    )
