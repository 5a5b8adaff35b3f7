"""The recording of a run folder: its journal has the tokens, the target computes their laws once more.

What was computed is kept in the folder, so that the next replay needs no model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tts_orch.config import EngineConfig, RunConfig
from tts_orch.errors import ProblemError, RunFolderError
from tts_orch.journal import read_finished
from tts_orch.manifest import Manifest
from tts_orch.records import Candidate, Problem
from tts_orch.replay.recording import RecordedTrajectory, Recording
from tts_orch.run_folder import read_identity
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render

if TYPE_CHECKING:
    from tts_orch.engine.target import Target

__all__ = ["FinishedRun", "recover"]

_FILE: Final = "recording.npz"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a run folder tells without its target model.

    Attributes:
        folder: the run folder.
        config: settings of the latest run in it.
        manifest: what it belongs to.
        problems: those that have finished candidates, by id, in order.
        candidates: all that are finished, by problem id, in order of their paths.
    """

    folder: Path
    config: RunConfig
    manifest: Manifest
    problems: Mapping[str, Problem]
    candidates: Mapping[str, Sequence[Candidate]]

    @classmethod
    def read(cls, folder: Path, limit: int | None = None) -> FinishedRun:
        """Read a folder of `tts-orch run`.

        Args:
            folder: the run folder; it may be in use.
            limit: take the first so many problems only.

        Raises:
            UserError: it is no run folder, its problem file has changed, it was decoded with rejection verification or step
                by step, or nothing is finished.
        """
        manifest, config = read_identity(folder)
        if config.engine.verification != "keyed":
            raise RunFolderError(f"{folder}: its tokens depend on its drafts; replay needs --verification keyed")
        problems = _problems(folder, config)[:limit]
        difference = manifest.difference(Manifest.of(config, problems))
        if difference:
            raise RunFolderError(f"{folder}: {difference}; replay needs the problems as they were")
        candidates = _by_problem(read_finished(folder))
        found = {problem.id: problem for problem in problems if problem.id in candidates}
        if not found:
            raise RunFolderError(f"{folder}: no finished candidates of these problems yet; let the run go on")
        if any(one.n_before or one.can_continue for group in candidates.values() for one in group):
            raise RunFolderError(
                f"{folder}: sampled step by step; replay needs whole candidates, as those of best_of_n"
            )
        return cls(folder, config, manifest, found, candidates)

    def check_target(self, target: Target) -> None:
        """Refuse another target than the one that decoded the run; say so where its numerics differ.

        Raises:
            RunFolderError: its weights or the kind of its numerics are others.
        """
        decoded_by, name = self.manifest.target, self.config.engine.target
        for what, is_now in (("weights", target.weights_id), ("numerics", target.numerics)):
            if decoded_by.get(what) != is_now:
                was = decoded_by.get(what)
                raise RunFolderError(
                    f"{self.folder}: {what} of {name} were {was!r} and are {is_now!r}; use the run's target"
                )
        if target.fingerprint not in self.manifest.fingerprints:
            logger.warning("%s: decoded on a machine of other numerics; laws are right up to rounding", self.folder)


def _problems(folder: Path, config: RunConfig) -> list[Problem]:
    try:
        return read_problems(config.problems)[: config.limit]
    except ProblemError as error:
        raise ProblemError(f"{folder / 'config.yaml'}: problems: {error}") from None


def _by_problem(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    in_order = sorted(candidates, key=lambda one: (one.problem_id, one.path))
    return {problem_id: list(group) for problem_id, group in groupby(in_order, lambda one: one.problem_id)}


def recover(
    run: FinishedRun,
    load: Callable[[EngineConfig], Target],
    on_problem: Callable[[int, int], object] = lambda n_done, n_problems: None,
) -> Recording:
    """Return the recording of a run's finished candidates.

    Args:
        run: the run.
        load: loads its target; called only if the folder does not have all laws yet.
        on_problem: told how many problems are done, of how many.

    Raises:
        UserError: the target is not the run's.
        RunError: the recording cannot be written.
    """
    known = _stored(run)
    missing = [problem_id for problem_id in run.problems if problem_id not in known]
    if missing:
        target = load(run.config.engine)
        run.check_target(target)
        for n_done, problem_id in enumerate(missing):
            on_problem(n_done, len(missing))
            known[problem_id] = _recovered(run, target, problem_id)
        on_problem(len(missing), len(missing))
        Recording.joined(list(known.values())).save(run.folder / _FILE)
    return Recording.joined([known[problem_id] for problem_id in run.problems])


def _stored(run: FinishedRun) -> dict[str, Recording]:
    """Return what the folder's recording still says rightly, by problem."""
    path = run.folder / _FILE
    if not path.exists():
        return {}
    stored = Recording.load(path)
    if stored.weights_id != run.manifest.target.get("weights"):
        return {}
    problems = {problem_id: stored.of_problems([problem_id]) for problem_id in stored.problem_ids}
    return {
        problem_id: recording
        for problem_id, recording in problems.items()
        if _matches(recording.trajectories, run.candidates.get(problem_id))
    }


def _matches(trajectories: Sequence[RecordedTrajectory], candidates: Sequence[Candidate] | None) -> bool:
    recorded = [(one.name, one.seed, tuple(one.tokens.tolist())) for one in trajectories]
    return recorded == [(_name(one), one.seed, one.token_ids) for one in candidates or ()]


def _name(candidate: Candidate) -> str:
    return f"{candidate.problem_id}/{'.'.join(map(str, candidate.path))}"


def _recovered(run: FinishedRun, target: Target, problem_id: str) -> Recording:
    from tts_orch.replay.teacher_forcing import forced_laws  # loads torch

    prompt = render(run.problems[problem_id], target.tokenizer, run.config.template, run.config)  # type: ignore[arg-type]
    candidates = run.candidates[problem_id]
    outputs = [np.array(one.token_ids, np.int32) for one in candidates]
    laws = forced_laws(target, prompt, outputs)
    prompt_laws = {problem_id: next(laws)}
    trajectories = [
        RecordedTrajectory(_name(one), problem_id, one.path[-1], one.seed, prompt, output, *law)
        for one, output, law in zip(candidates, outputs, laws, strict=True)
    ]
    return Recording(
        law=run.config.law.sampling_params(),
        vocabulary_size=target.vocab_size,
        max_context=target.max_context,
        weights_id=target.weights_id,
        numerics=target.numerics,
        fingerprint=target.fingerprint,
        prompt_laws=prompt_laws,
        trajectories=trajectories,
    )
