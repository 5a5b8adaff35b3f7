"""A candidate that a policy asks for: where it stands in the search, what is decoded for it, what becomes of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts_orch.actors._live_candidate import Decoded
from tts_orch.actors.search_plan import SearchPlan, SearchServices
from tts_orch.records import (
    Candidate,
    DecodeRequest,
    FinishReason,
    Path,
    Prefix,
    Problem,
    SamplingParams,
    StepRule,
)
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.candidates import assemble_candidate

__all__ = ["CandidatePlace", "places"]


@dataclass(frozen=True, slots=True)
class CandidatePlace:
    """One child of a prefix.

    Attributes:
        prefix: what it goes on from.
        path: its place in the search.
        seed: trajectory seed of that place.
        law: sampling law.
        step: where it may end before its solution does.
    """

    prefix: Prefix
    path: Path
    seed: int
    law: SamplingParams
    step: StepRule | None

    @property
    def output_before(self) -> tuple[int, ...]:
        """Output tokens that it goes on from."""
        return tuple(self.prefix.token_ids[self.prefix.prompt_length :].tolist())

    def is_place_of(self, candidate: Candidate) -> bool:
        """Whether a candidate of this path went on from this very prefix, and ended where it would end now.

        What was before it may have changed, and so may the confidence that it must not lose.
        """
        before = self.output_before
        is_same_prefix = candidate.n_before == len(before) and candidate.token_ids[: len(before)] == before
        return is_same_prefix and not self._is_cut_elsewhere(candidate)

    def _is_cut_elsewhere(self, candidate: Candidate) -> bool:
        cut = self.step.confidence if self.step else None
        if cut is None or candidate.n_new < cut.window:  # too short to be cut
            return False
        return (candidate.lowest_confidence < cut.least) != (candidate.finish_reason is FinishReason.LOW_CONFIDENCE)

    def request(self, plan: SearchPlan, scope: str, priority: int) -> DecodeRequest:
        """Return what a decoder is asked for."""
        prefix = self.prefix
        return DecodeRequest(
            candidate_id=f"{prefix.problem_id}/{'.'.join(map(str, self.path))}",
            token_ids=prefix.token_ids,
            prompt_length=prefix.prompt_length,
            seed=self.seed,
            law=self.law,
            scope=scope,
            statistics_from=prefix.statistics_from,
            use_drafts=plan.use_drafts,
            priority=priority,
            attempt=plan.attempt,
            step=self.step,
        )

    def candidate(self, problem: Problem, decoded: Decoded, services: SearchServices) -> Candidate:
        """Return what was decoded as a candidate."""
        cut = self.step.confidence if self.step else None
        return assemble_candidate(
            problem,
            self.path,
            self.seed,
            self.law,
            decoded.chunk,
            decode=services.decode,
            extract=services.extract,
            output_before=self.output_before,
            parent=self.prefix.parent or (),
            confidence_window=cut.window if cut else None,
            worker=decoded.worker,
            fingerprint=decoded.fingerprint,
        )


def places(
    prefixes: Sequence[Prefix], children: range, run_seed: int, law: SamplingParams, step: StepRule | None
) -> list[CandidatePlace]:
    """Return the places of these children of every prefix."""
    paths = [(prefix, (*prefix.path, child)) for prefix in prefixes for child in children]
    return [
        CandidatePlace(prefix, path, trajectory_seed(run_seed, prefix.problem_id, path), law, step)
        for prefix, path in paths
    ]
