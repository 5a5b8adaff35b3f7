"""Everything that a decoder and its drafter tell each other, and whether there is drafting at all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from tts_orch.config import EngineConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.laws import RawStatistics
from tts_orch.engine.observation import laws_by_node, no_laws, verified_step
from tts_orch.engine.packing import Entry
from tts_orch.engine.prompt_lessons import PromptLessons
from tts_orch.engine.trajectory import Trajectory
from tts_orch.engine.turns import take_turn
from tts_orch.engine.verification import Walk
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_balance import DraftBalance
from tts_orch.policies.drafting.draft_size import DraftSize, FixedSize
from tts_orch.policies.drafting.draft_tree import (
    AsynchronousDrafter,
    CountingDrafter,
    Drafter,
    DraftTree,
    TrajectoryStart,
)
from tts_orch.policies.drafting.node_budget import NodeBudget
from tts_orch.policies.drafting.relay import innermost
from tts_orch.seeds import stream_seed

__all__ = ["DrafterLink"]

_NODES_TO_LEARN_FROM: Final = 3
"""Nodes of a tree, in the mean and with the root, from which rejected ones are learned: of fewer there is little to learn."""


class DrafterLink:
    """A decoder's side of a `Drafter`: who is told what and when, how many nodes are drafted, when drafts rest.

    Args:
        drafter: who drafts.
        config: limits of drafts, and how they are verified.
        cost_model: what passes cost, for a node budget.
        pages: where the features of committed positions are.

    Attributes:
        drafter: as given.
        balance: whether drafts pay, None where they have a fixed size.
    """

    def __init__(self, drafter: Drafter, config: EngineConfig, cost_model: CostModel | None, pages: KVPages) -> None:
        self.drafter = drafter
        self.balance: DraftBalance | None = None
        self._pages = pages
        self._config = config
        self._cost_model = cost_model
        self._is_keyed = config.verification == "keyed"
        self._lessons = PromptLessons()
        self._size = self._new_size()
        if isinstance(self._size, NodeBudget) and cost_model is not None:
            self.balance = DraftBalance(cost_model.seconds)

    def _new_size(self) -> DraftSize | None:
        """Return what decides on the drafter's nodes, with nothing learned; None if there shall be none."""
        max_nodes = self._config.max_nodes
        if max_nodes and self._config.node_budget and self._cost_model is not None:
            return NodeBudget(self.drafter.priors, self._cost_model.seconds, max_nodes)
        return FixedSize(max_nodes) if max_nodes else None

    def change_drafter(self, drafter: Drafter, trajectories: Sequence[Trajectory]) -> None:
        """Go on with another drafter, which is begun with those trajectories that the old one knows.

        Raises:
            ConfigError: it reads hidden states that nobody kept.
        """
        if drafter.feature_layers not in ((), self._pages.feature_layers):
            raise ConfigError(
                f"drafters: the new one reads hidden states {list(drafter.feature_layers)}, and kept are "
                f"{list(self._pages.feature_layers)}; start a run with it"
            )
        known = [trajectory for trajectory in trajectories if trajectory.is_known]
        for trajectory in known:
            self.close(trajectory)
            trajectory.is_known, trajectory.is_asked, trajectory.features_told = False, False, 0
        self.drafter = drafter
        self._size = self._new_size()
        for trajectory in known:
            self.start(trajectory)

    def start(self, trajectory: Trajectory) -> None:
        """Tell the drafter about a trajectory, unless it knows it from before a preemption."""
        request = trajectory.request
        if not request.use_drafts or trajectory.is_known:
            return
        trajectory.is_known = True
        seed = request.seed if self._is_keyed else stream_seed(request.seed, request.attempt, "drafts")
        self.drafter.start(
            TrajectoryStart(
                request.candidate_id,
                trajectory.token_ids.copy(),
                request.scope,
                seed,
                request.law,
                self._is_keyed,
                request.domain,
                request.drafter,
            )
        )
        if not self.drafter.learns_prompt_laws:
            self._lessons.teach_text(self.drafter, trajectory)

    def n_learned(self, trajectory: Trajectory) -> int:
        """Return how many positions of a prefill, from its beginning, need no law for the drafter's sake."""
        if not trajectory.request.use_drafts or not self.drafter.learns_prompt_laws:
            return trajectory.length
        return self._lessons.n_taught(trajectory)

    def learn_prompt(self, trajectory: Trajectory, entry: Entry, statistics: RawStatistics) -> None:
        """Tell the drafter the laws of a prefill chunk, unless they are no laws."""
        self._lessons.teach_laws(self.drafter, trajectory, entry, statistics)

    @property
    def is_resting(self) -> bool:
        """Whether drafts have cost more than they brought, for now; members of a composition rest one by one."""
        if self.balance is None:
            return False
        drafter = innermost(self.drafter)
        if isinstance(drafter, ComposedDrafter):
            return drafter.is_resting
        return not self.balance.affords_drafts

    def drafting(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return those that get drafts in this pass."""
        if self._size is None or self.is_resting:
            return []
        return [trajectory for trajectory in trajectories if trajectory.request.use_drafts]

    def take_turn(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return who is verified in this pass: all, or while the drafter works on some of them the others."""
        drafter = innermost(self.drafter)
        if not isinstance(drafter, AsynchronousDrafter):
            return list(trajectories)
        turn, others = take_turn(self.drafting(trajectories))
        for half in (turn, others):  # what is wanted first is asked for first
            unasked = [trajectory for trajectory in half if not trajectory.is_asked]
            if unasked:
                self._tell_features(unasked)
                drafter.request([trajectory.request.candidate_id for trajectory in unasked])
            for trajectory in unasked:
                trajectory.is_asked = True
        waiting = set(map(id, others))
        return [trajectory for trajectory in trajectories if id(trajectory) not in waiting]

    def draft(
        self, trajectories: Sequence[Trajectory], rooms: NDArray[np.int64], other_rows: int, n_roots: int
    ) -> list[DraftTree]:
        """Return a tree for each trajectory; see `DraftSize.draft`."""
        assert self._size is not None
        self._tell_features(trajectories)
        source = self.drafter.slots([trajectory.request.candidate_id for trajectory in trajectories])
        return self._size.draft(source, rooms, other_rows, n_roots)

    def _tell_features(self, trajectories: Sequence[Trajectory]) -> None:
        """Tell the drafter the features of all positions but the root's that it has not been told, once it may read them."""
        if not self.drafter.feature_layers:
            return
        drafter = innermost(self.drafter)
        if isinstance(drafter, ComposedDrafter) and not drafter.reads_features:
            return
        for trajectory in trajectories:
            first, last = trajectory.features_told, trajectory.length - 1
            if first < last:
                features = self._pages.read_features(trajectory.pages, first, last)
                self.drafter.observe_features(trajectory.request.candidate_id, first, features)
                trajectory.features_told = last

    def learn(
        self,
        trajectories: Sequence[Trajectory],
        walks: Sequence[Walk],
        counts: Sequence[int],
        statistics: RawStatistics,
        logits: torch.Tensor,
    ) -> None:
        """Tell the drafter and the node budget what was verified in a pass.

        Args:
            trajectories: that had a root in it.
            walks: theirs.
            counts: tokens that each committed.
            statistics: one row a visited node, in the order of the walks.
            logits: of the whole pass.
        """
        taught = [i for i, trajectory in enumerate(trajectories) if counts[i] and trajectory.request.use_drafts]
        if not taught:
            return
        walked, n_committed = [walks[i] for i in taught], [counts[i] for i in taught]
        if self.balance is None or self.balance.affords_learning:
            first_rows = list(accumulate((len(walk.nodes) for walk in walks), initial=0))
            all_rows = logits if self._learns_from_rejected(walked) else None
            laws = laws_by_node(walked, n_committed, statistics, [first_rows[i] for i in taught], all_rows)
        else:
            laws = no_laws(walked, statistics.top_ids.shape[1])
        names = [trajectories[i].request.candidate_id for i in taught]
        steps = [verified_step(*step) for step in zip(names, walked, n_committed, laws, strict=True)]
        if self._size is not None and not self.is_resting:
            self._size.observe(steps)
        self.drafter.observe(steps)
        for i in taught:
            trajectories[i].observe_from = trajectories[i].length

    def _learns_from_rejected(self, walks: Sequence[Walk]) -> bool:
        n_nodes = sum(walk.tree.n_nodes for walk in walks)
        return self.drafter.learns_from_rejected and n_nodes >= _NODES_TO_LEARN_FROM * len(walks)

    def statistics(self) -> dict[str, float]:
        """Return the drafter's counters, if it counts."""
        drafter = innermost(self.drafter)
        return drafter.statistics() if isinstance(drafter, CountingDrafter) else {}

    def close(self, trajectory: Trajectory) -> None:
        """Tell the drafter that a trajectory has ended, if it knows it."""
        if trajectory.is_known:
            self.drafter.close(trajectory.request.candidate_id)

    def close_scope(self, scope: str) -> None:
        """Forget the draft statistics of a scope."""
        self.drafter.close_scope(scope)
        self._lessons.close_scope(scope)
