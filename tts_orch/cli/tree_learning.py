"""What `tts-orch tree optimize` does: count acceptance on some problems, cut the tree, measure it on the others."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import Progress

from tts_orch.cli.recovering import progress_bar, recovered
from tts_orch.cli.tree_steps import RunPart, StepSource, decoded_steps, replayed_steps
from tts_orch.config import EngineConfig, LawConfig
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.policies.drafting.tree_file import HeldOut, InitialTree, LearnedTree, TreeData
from tts_orch.policies.drafting.tree_optimizer import SlotCounts, optimize
from tts_orch.policies.drafting.tree_shape import INITIAL_ACCEPTANCE, MAX_DEPTH, STAND_ACCEPTANCE, TreeShape, heap_tree
from tts_orch.replay.acceptance import Acceptance
from tts_orch.replay.recovery import FinishedRun

__all__ = ["TreeSettings", "learn_tree"]


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """What the command line says.

    Attributes:
        runs: run folders to learn from.
        measured_runs: run folders to measure on only.
        n_nodes: nodes to keep.
        initial_nodes: nodes to choose from.
        initial_depth: their deepest level.
        holdout: share of the problems of `runs` that are measured on, not learned from.
        verification: of the verify steps that are counted.
        limit: problems to take of a run, None for all.
    """

    runs: Sequence[Path]
    measured_runs: Sequence[Path]
    n_nodes: int
    initial_nodes: int
    initial_depth: int
    holdout: float
    verification: Literal["keyed", "rejection"]
    limit: int | None


def learn_tree(settings: TreeSettings, console: Console) -> LearnedTree:
    """Return the learned tree and what it is worth.

    Raises:
        UserError: a run cannot be used, or the runs do not go together.
    """
    learned, held_out = _parts(settings)
    initial = heap_tree(INITIAL_ACCEPTANCE, settings.initial_nodes, settings.initial_depth)
    with progress_bar(console) as bar:
        trial = _Trial(_step_source(settings, [*learned, *held_out], bar), bar)
        counts = trial.count(learned, initial)
        shape, accepted = optimize(initial, counts.accepted, settings.n_nodes)
        worth = tuple(trial.measure(part, shape) for part in held_out if part.problem_ids)
    first = learned[0].run
    return LearnedTree(
        n_nodes=len(accepted) - 1,
        parents=tuple(shape.parent[1:].tolist()),
        slots=tuple(shape.slot[1:].tolist()),
        counts=tuple(accepted[1:].tolist()),
        verify_steps=counts.verify_steps,
        verification=settings.verification,
        law=first.config.law,
        target=first.config.engine.target,
        weights_id=_weights_id(first),
        tokenizer_id=_tokenizer_id(first.config.engine),
        data=tuple(_data(part) for part in learned),
        held_out=worth,
        initial_tree=InitialTree(
            acceptance=INITIAL_ACCEPTANCE, n_nodes=len(initial.parent) - 1, max_depth=settings.initial_depth
        ),
        command=shlex.join(["tts-orch", *sys.argv[1:]]),
        package_version=metadata.version("tts-orch"),
    )


def _parts(settings: TreeSettings) -> tuple[list[RunPart], list[RunPart]]:
    """Return the problems to learn from and those to measure on, by run."""
    runs = [FinishedRun.read(folder, settings.limit) for folder in settings.runs]
    measured_runs = [FinishedRun.read(folder, settings.limit) for folder in settings.measured_runs]
    _check_alike([*runs, *measured_runs])
    splits = [_split(run, settings.holdout) for run in runs]
    measured = [RunPart(run, tuple(run.problems)) for run in measured_runs]
    return [learned for learned, _ in splits], [*(held_out for _, held_out in splits), *measured]


def _check_alike(runs: Sequence[FinishedRun]) -> None:
    """Refuse runs of different targets or laws; where a trajectory ends does not matter."""
    first, *others = runs
    for run in others:
        for what, of_run in (("target", _weights_id), ("sampling law", _endless_law)):
            if of_run(run) != of_run(first):
                raise ConfigError(f"{run.folder}: another {what} than in {first.folder}; learn a tree for each")


def _weights_id(run: FinishedRun) -> str:
    weights_id: str = run.manifest.target["weights"]
    return weights_id


def _endless_law(run: FinishedRun) -> LawConfig:
    return run.config.law.model_copy(update={"max_new_tokens": 1, "min_new_tokens": 0, "stop": ()})


def _split(run: FinishedRun, holdout: float) -> tuple[RunPart, RunPart]:
    """Return the problems to learn from, at least one, and the last ones to measure on."""
    problem_ids = tuple(run.problems)
    n_learned = max(1, round((1 - holdout) * len(problem_ids)))
    return RunPart(run, problem_ids[:n_learned]), RunPart(run, problem_ids[n_learned:])


def _step_source(settings: TreeSettings, parts: Sequence[RunPart], bar: Progress) -> StepSource:
    if settings.verification == "rejection":
        return decoded_steps
    runs = {part.run.folder: part.run for part in parts}
    return replayed_steps({folder: recovered(run, bar) for folder, run in runs.items()})


@dataclass(frozen=True, slots=True)
class _Trial:
    """Tries trees, under a progress bar."""

    source: StepSource
    bar: Progress

    def count(self, parts: Sequence[RunPart], shape: TreeShape) -> SlotCounts:
        counts = SlotCounts(shape)
        for part in parts:
            for steps in self._steps(part, shape, "counting"):
                counts.add(steps)
        return counts

    def measure(self, part: RunPart, shape: TreeShape) -> HeldOut:
        heuristic = heap_tree(STAND_ACCEPTANCE, len(shape.parent) - 1, MAX_DEPTH)
        learned = self._acceptance(part, shape, "learned tree")
        return HeldOut(
            data=_data(part),
            verify_steps=learned.total.verify_steps,
            tau=learned.tau,
            heuristic_tau=self._acceptance(part, heuristic, "heuristic tree").tau,
        )

    def _acceptance(self, part: RunPart, shape: TreeShape, name: str) -> Acceptance:
        acceptance = Acceptance()
        for steps in self._steps(part, shape, name):
            acceptance.add(steps)
        return acceptance

    def _steps(self, part: RunPart, shape: TreeShape, name: str) -> Iterator[Sequence[VerifiedStep]]:
        task = self.bar.add_task(f"{name}, {part.run.config.problems.name}", total=part.n_tokens)
        for steps in self.source(part, shape):
            self.bar.advance(task, sum(len(step.committed) for step in steps))
            yield steps
        self.bar.remove_task(task)


def _data(part: RunPart) -> TreeData:
    digests = [digest for problem_id, digest in part.run.manifest.problems if problem_id in part.problem_ids]
    return TreeData(
        problems=part.run.config.problems.name,
        sha256=hashlib.sha256(json.dumps(digests).encode()).hexdigest(),
        problem_ids=part.problem_ids,
        n_trajectories=part.n_trajectories,
    )


def _tokenizer_id(config: EngineConfig) -> str:
    from transformers import AutoTokenizer  # slow to load

    from tts_orch.engine.model_files import locate, tokenizer_id

    place = locate(config.target)
    return tokenizer_id(AutoTokenizer.from_pretrained(place, trust_remote_code=config.trust_remote_code))
