"""Verify steps of a static tree on the problems of finished runs: replayed (keyed), or decoded once more (rejection)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tts_orch.cli.recovering import target_of
from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_shape import TreeShape
from tts_orch.records import DecodeRequest
from tts_orch.replay.recording import Recording
from tts_orch.replay.recovery import FinishedRun
from tts_orch.replay.replayer import replay
from tts_orch.tasks.prompts import render

if TYPE_CHECKING:
    from tts_orch.engine.target import Target

__all__ = ["RunPart", "StepSource", "decoded_steps", "replayed_steps"]


@dataclass(frozen=True, slots=True)
class RunPart:
    """Some problems of a run."""

    run: FinishedRun
    problem_ids: tuple[str, ...]

    @property
    def n_trajectories(self) -> int:
        """Finished trajectories of these problems."""
        return sum(len(self.run.candidates[problem_id]) for problem_id in self.problem_ids)

    @property
    def n_tokens(self) -> int:
        """Their output tokens."""
        return sum(one.n_tokens for problem_id in self.problem_ids for one in self.run.candidates[problem_id])


StepSource: TypeAlias = Callable[[RunPart, TreeShape], Iterator[Sequence[VerifiedStep]]]
"""Yields the verify steps of STAND with a tree of this shape, statistics cold for the first trajectory of every problem."""


def replayed_steps(recordings: Mapping[Path, Recording]) -> StepSource:
    """Return the verify steps of the keyed mode, from the recordings of all run folders that will be asked for."""
    return lambda part, shape: _replay(recordings[part.run.folder].of_problems(part.problem_ids), shape)


def _replay(recording: Recording, shape: TreeShape) -> Iterator[Sequence[VerifiedStep]]:
    stand = Stand(DraftingConfig(), shape, vocabulary_size=recording.vocabulary_size)
    return replay(recording, stand, FixedSize(len(shape.parent) - 1))


def decoded_steps(part: RunPart, shape: TreeShape) -> Iterator[Sequence[VerifiedStep]]:
    """Yield verify steps of the rejection mode, of as many trajectories as the run has.

    Problems go on side by side, trajectories of one problem one after the other.
    """
    from tts_orch.engine.decoder import Decoder  # loads torch

    target = target_of(part.run.config.engine)
    drafting = DraftingConfig(verification="rejection", node_budget=False, max_nodes=len(shape.parent) - 1)
    config = part.run.config.engine.model_copy(update=drafting.model_dump())
    stand = _HeardStand(config, shape, vocabulary_size=target.vocab_size)
    decoder = Decoder(target, stand, config)
    for turn in zip_longest(*_requests(part, target)):
        for request in filter(None, turn):
            decoder.submit(request)
        while not decoder.is_idle:
            decoder.step()
            yield stand.take()


class _HeardStand(Stand):
    """Keeps what it is told until it is taken."""

    _heard: tuple[VerifiedStep, ...] = ()

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Keep and learn."""
        self._heard += tuple(steps)
        super().observe(steps)

    def take(self) -> Sequence[VerifiedStep]:
        """Return what was heard since the last call."""
        heard, self._heard = self._heard, ()
        return heard


def _requests(part: RunPart, target: Target) -> Iterator[list[DecodeRequest]]:
    """Yield the requests of each problem, in order."""
    run, law = part.run, part.run.config.law.sampling_params()
    for problem_id in part.problem_ids:
        prompt = render(run.problems[problem_id], target.tokenizer, run.config.template, run.config)  # type: ignore[arg-type]
        yield [
            DecodeRequest(f"{problem_id}/{number}", prompt, len(prompt), candidate.seed, law, scope=problem_id)
            for number, candidate in enumerate(run.candidates[problem_id])
        ]
