"""The slots of a composed drafter: members grow their trees, the routing chooses or merges, and what pays is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.composed_kinds import ComposedKinds
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, Growth, SlotSource, TrajectoryId
from tts_orch.policies.drafting.paying_nodes import paying_nodes
from tts_orch.policies.routing.routing import PassSeconds, Routing

__all__ = ["ComposedSlots", "TakenDrafts"]

_Grow: TypeAlias = Callable[[int, SlotSource, NDArray[np.int64], NDArray[np.int64]], list[DraftTree]]
"""Grows a member's slots, given its number, the places of its trajectories in the batch, and the most nodes of each."""


@dataclass(frozen=True, slots=True)
class TakenDrafts:
    """What the members drafted for one trajectory, in their order, and the seconds that each took for it."""

    trees: dict[str, DraftTree] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A member's slots for some places in the batch, and the seconds that asking for them took."""

    number: int
    name: str
    places: NDArray[np.int64]
    source: SlotSource
    seconds: float


@dataclass(frozen=True, slots=True)
class ComposedSlots:
    """Slots of several trajectories at their committed positions (`RankedSlots`).

    Args:
        members: by name.
        kinds: of their nodes.
        routing: who drafts, and what becomes of the trees.
        on_trial: members whose nodes are taken for as good as at the beginning: what was learned of them let them rest.
        trajectories: of the batch.
        roots: last token of each.
        is_noisy: whether the verifier's noise may choose the nodes of each.
        choose: returns the members that draft for each of them, perhaps none, once a pass is priced.
        keep: is told what was drafted for each, and what the pass costs if that is known.
        pass_seconds: price of a pass where no cost curve is given.
        clock: seconds.
    """

    members: Mapping[str, Drafter]
    kinds: ComposedKinds
    routing: Routing
    on_trial: Sequence[str]
    trajectories: Sequence[TrajectoryId]
    roots: Sequence[int]
    is_noisy: Sequence[bool]
    choose: Callable[[Sequence[TrajectoryId], PassSeconds], Sequence[Sequence[str]]]
    keep: Callable[[Sequence[TakenDrafts], Growth | None], None]
    pass_seconds: PassSeconds
    clock: Callable[[], float]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root."""
        limits = np.asarray(n_nodes, np.int64)
        drafts = self._drafts(limits, self.pass_seconds, self.kinds.priors.ravel(), _grow)
        self.keep(drafts, None)
        return self._combined(drafts, limits)

    def grow_while_paying(self, growth: Growth) -> list[DraftTree]:
        """Return one tree a trajectory: each member grows as if it were alone, and of all it is the nodes that pay."""
        if self.on_trial:
            numbers = [number for number, name in enumerate(self.members) if name in self.on_trial]
            growth = replace(growth, rates=self.kinds.with_priors(numbers, growth.rates))

        def grow(
            member: int, source: SlotSource, places: NDArray[np.int64], limits: NDArray[np.int64]
        ) -> list[DraftTree]:
            rates, rooms = self.kinds.own_rates(member, growth.rates), growth.max_depth[places]
            own = replace(growth, rates=rates, max_nodes=limits, max_depth=rooms)
            grow_while_paying = getattr(source, "grow_while_paying", None)  # as in NodeBudget
            if grow_while_paying is not None:
                return grow_while_paying(own)
            trees = source.grow(limits.tolist())
            return paying_nodes(
                [tree.subtree(tree.depth <= room) for tree, room in zip(trees, rooms, strict=True)], own
            )

        def pass_seconds(n_nodes: float) -> float:
            rows = growth.other_rows + round(n_nodes * len(self.trajectories))
            return float(growth.seconds[min(rows, len(growth.seconds) - 1)]) / len(self.trajectories)

        limits = np.minimum(growth.max_nodes, len(growth.seconds) - 1 - growth.other_rows)
        drafts = self._drafts(limits, pass_seconds, growth.rates, grow)
        self.keep(drafts, growth)
        return paying_nodes(self._combined(drafts, limits), growth)

    def _drafts(
        self, limits: NDArray[np.int64], pass_seconds: PassSeconds, rates: NDArray[np.float64], grow: _Grow
    ) -> list[TakenDrafts]:
        chosen = self.choose(self.trajectories, pass_seconds)
        n_sharing = [max(len(names), 1) if self.routing.splits_nodes else 1 for names in chosen]
        shares = limits // np.array(n_sharing, np.int64)
        drafts = [TakenDrafts() for _ in self.trajectories]
        for asked in self._asked(chosen):  # whoever drafts elsewhere has begun
            started = self.clock()
            trees = grow(asked.number, asked.source, asked.places, shares[asked.places])
            seconds = (asked.seconds + self.clock() - started) / len(asked.places)
            for place, tree in zip(asked.places, trees, strict=True):
                is_noisy = self.is_noisy[place]
                drafts[place].trees[asked.name] = self.kinds.composed(asked.number, tree, rates, is_noisy=is_noisy)
                drafts[place].seconds[asked.name] = seconds
        return drafts

    def _asked(self, chosen: Sequence[Sequence[str]]) -> list[_Asked]:
        """Ask each member for slots of the trajectories for which it was chosen."""
        asked = []
        for number, (name, member) in enumerate(self.members.items()):
            places = np.array([place for place, names in enumerate(chosen) if name in names], np.int64)
            if len(places):
                started = self.clock()
                source = member.slots([self.trajectories[place] for place in places])
                asked.append(_Asked(number, name, places, source, self.clock() - started))
        return asked

    def _combined(self, drafts: Sequence[TakenDrafts], limits: NDArray[np.int64]) -> list[DraftTree]:
        return [
            self.routing.combine(trajectory, own.trees, limit) if own.trees else DraftTree.root_only(root)
            for trajectory, root, own, limit in zip(self.trajectories, self.roots, drafts, limits.tolist(), strict=True)
        ]


def _grow(member: int, source: SlotSource, places: NDArray[np.int64], limits: NDArray[np.int64]) -> list[DraftTree]:
    return source.grow(limits.tolist())
