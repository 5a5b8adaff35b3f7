"""`RecordingDrafter`: listens to a decoder and keeps what a `Recording` needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import (
    Drafter,
    DraftTree,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.policies.drafting.law_rows import text_rows
from tts_orch.policies.drafting.relay import Relay
from tts_orch.policies.drafting.text_drafter import TextDrafter
from tts_orch.records import FloatArray, IntArray, SamplingParams
from tts_orch.replay.recording import Laws, RecordedTrajectory, Recording, problem_and_index

__all__ = ["NoDrafts", "RecordingDrafter"]


@dataclass(slots=True)
class _Heard:
    """What was heard of one trajectory: a part a verify step."""

    start: TrajectoryStart
    tokens: list[IntArray] = field(default_factory=list)
    law_ids: list[IntArray] = field(default_factory=list)
    law_probs: list[FloatArray] = field(default_factory=list)


class RecordingDrafter(Relay):
    """Keeps the laws that a drafter is told.

    Its decoder must not use a node budget: learning would rest where drafts do not pay, and there would be no laws to keep.
    Candidate ids must be `problem/index`, as in a run. Only trajectories that begin at their prompt are recorded, no forks.

    Args:
        drafter: who drafts; without one nothing is drafted.
    """

    def __init__(self, drafter: Drafter | None = None) -> None:
        super().__init__(drafter or NoDrafts())
        self._heard: dict[TrajectoryId, _Heard] = {}
        self._finished: set[TrajectoryId] = set()
        self._prompt_laws: dict[str, Laws] = {}

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        self._heard[start.trajectory] = _Heard(start)
        super().start(start)

    @property
    def learns_prompt_laws(self) -> bool:
        """A recording keeps them, whatever the drafter wants."""
        return True

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Keep the laws of the prompt, once a problem."""
        n_rows, k = len(self._heard[trajectory].start.token_ids) - 1, law_ids.shape[1]
        problem_id, _ = problem_and_index(trajectory)
        nothing = np.zeros((n_rows, k), np.int32), np.zeros((n_rows, k), np.float32)
        ids, probs = self._prompt_laws.setdefault(problem_id, nothing)
        ids[start : start + len(law_ids)] = law_ids
        probs[start : start + len(law_ids)] = law_probs
        if not super().learns_prompt_laws:
            text = self._heard[trajectory].start.token_ids
            law_ids, law_probs = text_rows(text[start + 1 : start + 1 + len(law_ids)])
        super().observe_prompt(trajectory, start, law_ids, law_probs)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Keep the laws that committed tokens were drawn from."""
        for step in steps:
            heard = self._heard.get(step.trajectory)
            if heard is None:
                continue
            rows = np.concatenate(([0], step.accepted))[: len(step.committed)]
            heard.tokens.append(step.committed)
            heard.law_ids.append(step.law_ids[rows])
            heard.law_probs.append(step.law_probs[rows])
        super().observe(steps)

    def close(self, trajectory: TrajectoryId) -> None:
        """Finish the record of a trajectory."""
        if trajectory in self._heard and self._heard[trajectory].tokens:  # not cancelled before the first one
            self._finished.add(trajectory)
        super().close(trajectory)

    def recording(
        self,
        law: SamplingParams,
        *,
        vocabulary_size: int,
        max_context: int,
        weights_id: str,
        numerics: str,
        fingerprint: str,
    ) -> Recording:
        """Return what was recorded of the trajectories that ended, problems in the order in which they began.

        Args:
            law: the sampling law that they had.
            vocabulary_size: as the target's.
            max_context: as the target's.
            weights_id: as the target's.
            numerics: as the target's.
            fingerprint: as the target's.
        """
        trajectories = [self._recorded(name) for name in self._heard if name in self._finished]
        order = {one.problem_id: number for number, one in reversed(list(enumerate(trajectories)))}
        trajectories.sort(key=lambda one: (order[one.problem_id], one.index))
        prompt_laws = {one.problem_id: self._laws_of_prompt(one) for one in trajectories}
        return Recording(
            law, vocabulary_size, max_context, weights_id, numerics, fingerprint, prompt_laws, trajectories
        )

    def _recorded(self, name: TrajectoryId) -> RecordedTrajectory:
        heard = self._heard[name]
        ids, probs = np.concatenate(heard.law_ids), np.concatenate(heard.law_probs)
        place, start = problem_and_index(name), heard.start
        return RecordedTrajectory(name, *place, start.seed, start.token_ids, np.concatenate(heard.tokens), ids, probs)

    def _laws_of_prompt(self, recorded: RecordedTrajectory) -> Laws:
        shape = len(recorded.prompt) - 1, recorded.law_ids.shape[1]
        nothing = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        return self._prompt_laws.get(recorded.problem_id, nothing)


class NoDrafts(TextDrafter):
    """A `Drafter` without drafts: plain decoding, for whoever wants to hear what is decoded."""

    @property
    def priors(self) -> NDArray[np.float64]:
        """One kind of node, of which there are none."""
        return np.full(1, 0.5)

    def model(self, start: TrajectoryStart) -> _LastToken:
        """Return a text of which only the end is known."""
        return _LastToken()


class _LastToken:
    def append(self, token_ids: Sequence[int]) -> None:
        self._token = token_ids[-1]

    def draft(self, n_nodes: int) -> DraftTree:
        return DraftTree.root_only(self._token)
