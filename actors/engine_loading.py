"""Loads what a verifier steps: target model, drafter, and the replica of the shared draft statistics."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._engine_thread import SteppedDecoder, SyncedReplica
from tts_orch.config import EngineConfig
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.store.base import StatisticsLog

if TYPE_CHECKING:
    from tts_orch.drafters.pool_link import PoolLink
    from tts_orch.engine.target import Target
    from tts_orch.policies.drafting.stand import Stand

__all__ = ["Engine", "EngineFactory", "PrepareChange", "load_engine"]


PrepareChange: TypeAlias = Callable[[DrafterChange], Callable[[Drafter], Drafter]]
"""Loads what a change of the drafters needs, beside the running step; returns what makes the new drafter of the old one."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded engine, ready to be stepped."""

    decoder: SteppedDecoder
    replica: SyncedReplica | None
    tokenizer: Any
    fingerprint: str
    weights_id: str
    tokenizer_id: str
    numerics: str
    dtype: str
    max_context: int
    prepare_change: PrepareChange


EngineFactory: TypeAlias = Callable[[EngineConfig, StatisticsLog | None], Engine]
"""Makes an engine from its settings and the statistics log; without a log the statistics stay local."""


def load_engine(config: EngineConfig, log: StatisticsLog | None, pool: PoolLink | None = None) -> Engine:
    """Load the target model with its drafter.

    Args:
        config: the engine's settings.
        log: of the statistics.
        pool: hosts the trained drafters; without one they are loaded here.

    Raises:
        TargetError: the model cannot be found, read or served.
        ConfigError: a trained drafter cannot be read, or is for another target.
    """
    from tts_orch.drafters.loading import load_drafter
    from tts_orch.engine.decoder import Decoder  # loads torch, which a driver does not need
    from tts_orch.engine.model_files import tokenizer_id
    from tts_orch.engine.target import load_target
    from tts_orch.policies.drafting.warm_up import warm_up
    from tts_orch.store.replica import Replica

    target = load_target(config)
    warm_up(config)
    drafter = load_drafter(config, target, is_shared=log is not None, pool=pool)
    stand = _stand_of(drafter) if drafter is not None else None
    replica = Replica(stand, log, uuid.uuid4().hex) if log is not None and stand is not None else None
    return Engine(
        decoder=Decoder(target, drafter, config),
        replica=replica,
        tokenizer=target.tokenizer,
        fingerprint=target.fingerprint,
        weights_id=target.weights_id,
        tokenizer_id=tokenizer_id(target.tokenizer),
        numerics=target.numerics,
        dtype=str(target.dtype).removeprefix("torch."),
        max_context=target.max_context,
        prepare_change=functools.partial(_prepare_change, config, target, pool),
    )


def _prepare_change(
    config: EngineConfig, target: Target, pool: PoolLink | None, change: DrafterChange
) -> Callable[[Drafter], Drafter]:
    from tts_orch.drafters.loading import trained_loader, with_member

    member: Drafter | None = None
    if change.folder is not None:
        member = trained_loader(config, target)(change.folder.fetch())
    elif change.facts is not None and pool is not None:
        member = replace(pool, facts={change.name: change.facts}).drafter(change.name, config.max_nodes)
    return functools.partial(with_member, config=config, name=change.name, member=member)


def _stand_of(drafter: Drafter) -> Stand | None:
    """Return the part of a drafter whose statistics are shared."""
    from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
    from tts_orch.policies.drafting.stand import Stand

    members = drafter.members.values() if isinstance(drafter, ComposedDrafter) else [drafter]
    return next((member for member in members if isinstance(member, Stand)), None)
