"""STAND: drafts drawn from the target's own averaged n-gram laws, shared by all trajectories of a scope.

Source: arXiv 2506.04708. Ours: noise keyed by position (arXiv 2408.07978), so that a draft often is the very token the
verifier will draw, and raw laws in the table, processed at lookup, so that one table serves every sampling law.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.context_delta import ScopeDelta
from tts_orch.policies.drafting.delta_recorder import DeltaRecorder
from tts_orch.policies.drafting.draft_tree import TrajectoryId, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.law_rows import processed_rows
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand_contexts import contexts_of_text, contexts_of_tree
from tts_orch.policies.drafting.stand_kinds import DETERMINISTIC, GREEDY, KEYED, REJECTION, kind_priors
from tts_orch.policies.drafting.stand_slots import StandSlots, TrajectoryState
from tts_orch.policies.drafting.tree_shape import TreeShape
from tts_orch.records import FloatArray, IntArray, SamplingParams

__all__ = ["Stand"]


class Stand:
    """A `Drafter` with one table for all scopes.

    Args:
        config: what fills the table, how candidates are drawn, and how many contexts are kept.
        shape: the static tree whose first slots are filled when drafts have a fixed size.
        vocabulary_size: token ids must be below it.
        records_deltas: whether what is learned is kept for `drain`; pointless without a replica that drains.
    """

    def __init__(
        self,
        config: DraftingConfig,
        shape: TreeShape,
        *,
        vocabulary_size: int = 1 << 31,
        records_deltas: bool = False,
    ) -> None:
        self._config = config
        self._shape = shape
        self._table = NgramTable(max_entries=config.table_entries, vocabulary_size=vocabulary_size)
        self._recorder = DeltaRecorder() if records_deltas else None
        self._salts: dict[str, np.uint64] = {}
        self._trajectories: dict[TrajectoryId, TrajectoryState] = {}
        self._priors = kind_priors()

    @property
    def priors(self) -> NDArray[np.float64]:
        """Acceptance rates to begin with, `[groups, kinds of a group]`."""
        return self._priors

    @property
    def learns_from_rejected(self) -> bool:
        """Whether laws off the accepted path are wanted."""
        return self._config.update_from_rejected

    @property
    def table(self) -> NgramTable:
        """The statistics."""
        return self._table

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory; the first one of a scope opens it."""
        if start.scope not in self._salts:
            self._salts[start.scope] = self._table.open(start.scope)
        self._trajectories[start.trajectory] = TrajectoryState(
            scope=start.scope,
            salt=self._salts[start.scope],
            seed=np.uint64(start.seed),
            law=start.law,
            mode=self._mode(start),
            length=len(start.token_ids),
            tail=contexts_of_text(start.token_ids, len(start.token_ids) - 1, 1)[0],
            prompt=start.token_ids,
        )

    def _mode(self, start: TrajectoryStart) -> int:
        if start.law.temperature == 0:
            return GREEDY
        if self._config.draft_sampling == "deterministic":
            return DETERMINISTIC
        return KEYED if start.is_keyed else REJECTION

    def fork(self, source: TrajectoryId, target: TrajectoryStart) -> None:
        """Begin a trajectory; its tokens say all there is to know about its source."""
        self.start(target)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> StandSlots:
        """Return the slots of these trajectories at their committed positions."""
        states = [self._trajectories[trajectory] for trajectory in trajectories]
        stored = SamplingParams() if self._config.stored_law == "processed" else None
        return StandSlots(self._table, self._shape, states, 1 if self._config.unigram else 2, stored)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Learn the laws of a prefill; they stay local, since every worker that takes the prompt computes them."""
        state = self._trajectories[trajectory]
        if self._config.update_from_prefill and self._is_open(state) and len(law_ids):
            history = contexts_of_text(state.prompt, start, len(law_ids))
            salts = np.full(len(law_ids), state.salt)
            self._table.observe(salts, history, law_ids, self._stored(state, law_probs))

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn the laws that the settings ask for, once each, and advance the trajectories."""
        states = [self._trajectories[step.trajectory] for step in steps]
        learned = [self._learned(state, step) for state, step in zip(states, steps, strict=True)]
        n_rows = [len(ids) for _, ids, _ in learned]
        salts = np.array([state.salt for state in states]).repeat(n_rows)
        history, ids, probs = (np.concatenate(column) for column in zip(*learned, strict=True))
        contexts = self._table.observe(salts, history, ids, probs, returns_contexts=self._recorder is not None)
        if self._recorder is not None and contexts is not None:
            self._recorder.add([state.scope for state in states], n_rows, history, contexts)

    def _learned(self, state: TrajectoryState, step: VerifiedStep) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the contexts and laws to learn from a step, and advance the trajectory by its tokens."""
        history = contexts_of_tree(step.tree.token, step.tree.parent, state.tail)
        verified = np.zeros(len(step.committed), np.int64)
        verified[1:] = step.accepted[: len(verified) - 1]
        state.advance(len(verified), history[verified[-1]], step.committed[-1])
        rows = self._rows(step, verified) if self._is_open(state) else verified[:0]
        return history[rows], step.law_ids[rows], self._stored(state, step.law_probs[rows])

    def _is_open(self, state: TrajectoryState) -> bool:
        """Whether the trajectory's scope is still the one it began in; a late trajectory of a closed one teaches nothing."""
        return self._salts.get(state.scope) == state.salt

    def _rows(self, step: VerifiedStep, verified: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes whose laws are learned, some or all of the verified ones among them."""
        if not self._config.update_from_rejected:
            return verified if self._config.update_from_accepted else verified[:0]
        is_learned = step.law_probs[:, 0] > 0
        is_learned[verified] = self._config.update_from_accepted
        return np.flatnonzero(is_learned)

    def _stored(self, state: TrajectoryState, probs: FloatArray) -> FloatArray:
        """Return laws as the table keeps them."""
        return processed_rows(probs, state.law) if self._config.stored_law == "processed" else probs

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; the statistics of its scope stay."""
        self._trajectories.pop(trajectory, None)

    def close_scope(self, scope: str) -> None:
        """Drop the statistics of a scope; what it has not handed out yet is part of the next `drain`."""
        if self._salts.pop(scope, None) is not None:
            self._table.close(scope)

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes that have statistics."""
        return frozenset(self._salts)

    @property
    def n_undrained(self) -> int:
        """Observations that wait for `drain`, one a context each time."""
        return self._recorder.n_contexts if self._recorder is not None else 0

    def drain(self) -> list[ScopeDelta]:
        """Return what was learned from verify steps since the last call, coalesced by scope."""
        return self._recorder.drain() if self._recorder is not None else []

    def merge(self, delta: ScopeDelta) -> None:
        """Add what another drafter learned; a scope that is not open is ignored.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        if delta.scope in self._salts:
            self._table.merge(delta.scope, delta.contexts)

    def reload(self, delta: ScopeDelta) -> None:
        """Replace a scope's statistics by a delta and what waits for `drain`; prompts' laws are lost. Raises as `merge` does."""
        if delta.scope in self._salts:
            self._table.close(delta.scope)
            self._salts[delta.scope] = self._table.open(delta.scope)
            for state in self._trajectories.values():
                if state.scope == delta.scope:
                    state.salt = self._salts[delta.scope]
            self._table.merge(delta.scope, delta.contexts)
            if self._recorder is not None:
                self._table.merge(delta.scope, self._recorder.undrained(delta.scope))
