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
from tts_orch.policies.drafting.draft_tree import TrajectoryId, TrajectoryStart, VerifiedStep, WithoutFeatures
from tts_orch.policies.drafting.joined_steps import join_steps
from tts_orch.policies.drafting.law_rows import processed_rows
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand_contexts import contexts_of_text, rows_to_learn
from tts_orch.policies.drafting.stand_kinds import DETERMINISTIC, GREEDY, KEYED, REJECTION, kind_priors
from tts_orch.policies.drafting.stand_slots import StandSlots, TrajectoryState
from tts_orch.policies.drafting.tree_shape import TreeShape
from tts_orch.records import FloatArray, IntArray, SamplingParams

__all__ = ["Stand"]


class Stand(WithoutFeatures):
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
    def learns_prompt_laws(self) -> bool:
        """Whether prompts are learned by their laws; their text does as well and costs nothing."""
        return self._config.update_from_prefill == "laws"

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

    def slots(self, trajectories: Sequence[TrajectoryId]) -> StandSlots:
        """Return the slots of these trajectories at their committed positions."""
        states = [self._trajectories[trajectory] for trajectory in trajectories]
        stored = SamplingParams() if self._config.stored_law == "processed" else None
        return StandSlots(self._table, self._shape, states, 1 if self._config.unigram else 2, stored)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Learn the laws or the text of a prefill; this stays local, since every worker that takes the prompt learns it."""
        state = self._trajectories[trajectory]
        if (
            self._config.update_from_prefill != "nothing"
            and len(law_ids)
            and self._salts.get(state.scope) == state.salt
        ):
            if self._config.stored_law == "processed":
                law_probs = processed_rows(law_probs, state.law)
            history = contexts_of_text(state.prompt, start, len(law_ids))
            self._table.observe(np.full(len(law_ids), state.salt), history, law_ids, law_probs)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn the laws that the settings ask for, once each, and advance the trajectories."""
        states = [self._trajectories[step.trajectory] for step in steps]
        tails = np.array([state.tail for state in states])
        probs = np.concatenate([step.law_probs for step in steps])
        history, rows, n_rows = rows_to_learn(
            join_steps(steps),
            tails,
            probs[:, 0] > 0,
            self._config.update_from_accepted,
            self._config.update_from_rejected,
        )
        self._learn(states, history, np.concatenate([step.law_ids for step in steps])[rows], probs[rows], n_rows)
        for state, step, tail in zip(states, steps, tails, strict=True):
            state.length += len(step.committed)
            state.tail = tail

    def _learn(
        self,
        states: Sequence[TrajectoryState],
        history: IntArray,
        ids: IntArray,
        probs: FloatArray,
        n_rows: NDArray[np.int64],
    ) -> None:
        """Count laws into the table, `n_rows[i]` of each trajectory; late ones of a closed scope teach nothing."""
        is_open = np.array([self._salts.get(state.scope) == state.salt for state in states])
        if not is_open.all():
            is_learned = is_open.repeat(n_rows)
            history, ids, probs, n_rows = history[is_learned], ids[is_learned], probs[is_learned], n_rows * is_open
        if self._config.stored_law == "processed":
            parts = np.split(probs, np.cumsum(n_rows)[:-1])
            probs = np.concatenate([processed_rows(part, s.law) for part, s in zip(parts, states, strict=True)])
        salts = np.array([state.salt for state in states]).repeat(n_rows)
        contexts = self._table.observe(salts, history, ids, probs, returns_contexts=self._recorder is not None)
        if self._recorder is not None and contexts is not None:
            self._recorder.add([state.scope for state in states], n_rows.tolist(), history, contexts)

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
        """Replace a scope's statistics by a delta and what waits for `drain`; what prompts taught is lost. Raises as `merge` does."""
        if delta.scope in self._salts:
            self._table.close(delta.scope)
            self._salts[delta.scope] = self._table.open(delta.scope)
            for state in self._trajectories.values():
                if state.scope == delta.scope:
                    state.salt = self._salts[delta.scope]
            self._table.merge(delta.scope, delta.contexts)
            if self._recorder is not None:
                self._table.merge(delta.scope, self._recorder.undrained(delta.scope))
