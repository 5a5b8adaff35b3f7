"""The folder of a run: who may write to it, what it belongs to, and its files.

lock              held while a run is on; freed by the operating system when its process ends, however it ends
manifest.json     identity, versions, fingerprints of the workers             (`tts_orch.manifest`)
config.yaml       resolved settings of the latest run
candidates.jsonl  every finished candidate; scores.jsonl: what a reward model said of it; steps.jsonl: every search step
                                                                              (`tts_orch.journal`)
results.jsonl     a line a problem; summary.json: the run in numbers          (`tts_orch.results`)
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tts_orch.atomic_file import write_atomically
from tts_orch.config import RunConfig, load_config
from tts_orch.errors import ConfigError, RunFolderError
from tts_orch.folder_lock import FolderLock
from tts_orch.journal import Journal
from tts_orch.json_lines import JsonLinesFile, JsonObject, json_line, read_json_lines
from tts_orch.manifest import Manifest
from tts_orch.records import Problem
from tts_orch.results import ProblemResult
from tts_orch.settings import files_may_be_gone

__all__ = ["RunFolder", "check_folder", "read_identity", "read_results", "read_summary", "results_of", "unusable"]

_MANIFEST: Final = "manifest.json"
_STARTED: Final = frozenset(
    {"lock", "manifest.json.new", "candidates.jsonl", "scores.jsonl", "steps.jsonl", "results.jsonl"}
)

logger = logging.getLogger(__name__)


def check_folder(config: RunConfig, problems: Sequence[Problem]) -> None:
    """Do as opening `config.out` does with what the folder holds already, without writing, making or locking anything.

    Raises:
        RunFolderError: the folder cannot be read, is damaged, no run folder, or of another identity.
    """
    path = config.out
    try:
        if path.exists():
            _refuse_foreign_folder(path)
            _check_identity(path, Manifest.read(path / _MANIFEST), Manifest.of(config, problems))
    except OSError as error:
        raise unusable(path, error) from None


class RunFolder:
    """A run folder, locked and open for writing.

    Args:
        config: settings of this run; `config.out` is the folder, made when it is missing.
        problems: the problems of this run, in order.

    Attributes:
        journal: finished candidates and search steps.

    Raises:
        RunFolderError: the folder cannot be written, is in use, damaged, no run folder, or of another identity.
    """

    def __init__(self, config: RunConfig, problems: Sequence[Problem]) -> None:
        self.path = config.out
        self._config = config
        self._problems = problems
        self._manifest = Manifest.of(config, problems)
        with ExitStack() as stack:
            try:
                self._open(stack)
            except OSError as error:
                raise unusable(self.path, error) from None
            self._opened = stack.pop_all()

    def _open(self, stack: ExitStack) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        _refuse_foreign_folder(self.path)
        stack.callback(FolderLock(self.path).release)
        stack.callback(self._remove_if_unused)
        self._earlier = Manifest.read(self.path / _MANIFEST)
        _check_identity(self.path, self._earlier, self._manifest)
        self.journal = Journal(self.path)
        stack.callback(self.journal.close)
        self._results_file = JsonLinesFile(self.path / "results.jsonl")
        stack.callback(self._results_file.close)
        self._results = read_results(self.path)

    @property
    def results(self) -> list[ProblemResult]:
        """The results of this run so far, in problem order."""
        return results_of(self._results, [problem.id for problem in self._problems], self._config.method.n)

    @property
    def pending(self) -> list[Problem]:
        """The problems without a result, or stopped with their run, or with candidates that failed or left the journal."""
        done = {result.problem_id for result in self.results if self._is_complete(result)}
        return [problem for problem in self._problems if problem.id not in done]

    @property
    def half_done(self) -> list[Problem]:
        """The problems that an earlier run was stopped in: with some of the candidates it wanted, and not with all."""
        return [problem for problem in self.pending if self._is_half_done(problem.id)]

    def _is_half_done(self, problem_id: str) -> bool:
        n_finished, result = self.journal.n_finished[problem_id], self._results.get(problem_id)
        if not self._config.method.samples_whole:  # how many candidates it wants shows only at its end
            return n_finished > 0 and result is None
        if n_finished >= self._config.method.n:
            return False
        return n_finished > (result.n_finished if result else 0)  # more than came by no stop

    def _is_complete(self, result: ProblemResult) -> bool:
        return result.is_settled and self.journal.n_finished[result.problem_id] >= result.n_finished

    def begin(self, target: Mapping[str, Any], fingerprints: Sequence[str]) -> None:
        """Write down what the run belongs to, once the target model is loaded and before anything is decoded.

        Args:
            target: what fixes the tokens on the model's side, by name.
            fingerprints: numerics of the workers.

        Raises:
            RunFolderError: the folder belongs to another target.
        """
        self._manifest = self._manifest.with_target(target, fingerprints)
        _check_identity(self.path, self._earlier, self._manifest)
        if self._earlier:
            self._warn_of_new_fingerprints(self._earlier)
            self._manifest = self._earlier.continued_by(self._manifest)
        self._manifest.write(self.path / _MANIFEST)
        write_atomically(self.path / "config.yaml", self._config.to_yaml())

    def note_fingerprints(self, fingerprints: Iterable[str]) -> None:
        """Add the numerics of workers that joined since `begin` to the manifest."""
        self._manifest = replace(
            self._manifest, fingerprints=tuple(sorted({*self._manifest.fingerprints, *fingerprints}))
        )
        self._manifest.write(self.path / _MANIFEST)

    @property
    def n_earlier_runs(self) -> int:
        """Runs that began in this folder before this one; it is on the disk before anything is decoded.

        So it numbers attempts at what is unfinished: none is ever repeated with the coins of an earlier one.
        """
        return self._manifest.n_runs - 1

    def _warn_of_new_fingerprints(self, earlier: Manifest) -> None:
        if self._config.engine.verification == "keyed" and not set(self._manifest.fingerprints) <= set(
            earlier.fingerprints
        ):
            logger.warning(
                "%s: decoded on workers of other numerics before; equal seeds may give other tokens", self.path
            )

    def add(self, result: ProblemResult) -> None:
        """Append a problem's result; on return it and its candidates are on the disk.

        Raises:
            RunError: it cannot be written.
        """
        self.journal.sync()
        self._results_file.append(result.to_json())
        self._results_file.sync()
        self._results[result.problem_id] = result

    def write_results(self) -> None:
        """Replace `results.jsonl` by the results of this run, in problem order; nothing is added after that.

        Raises:
            RunError: it cannot be written.
        """
        lines = (json_line(result.to_json()) for result in self.results)
        write_atomically(self._results_file.path, "".join(lines))

    def read_summary(self) -> JsonObject:
        """Return the summary of the latest run in this folder, empty before the first.

        Raises:
            RunFolderError: it is damaged.
        """
        return read_summary(self.path)

    def write_summary(self, summary: JsonObject) -> None:
        """Replace `summary.json`.

        Raises:
            RunError: it cannot be written.
        """
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def _remove_if_unused(self) -> None:
        if all(_is_unused(entry) for entry in self.path.iterdir()):
            for entry in self.path.iterdir():
                entry.unlink()
            self.path.rmdir()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()


def unusable(path: Path, error: OSError) -> RunFolderError:
    """Return the error for a folder that cannot be read or written."""
    return RunFolderError(f"{path}: {error.strerror}; give a folder that can be written as --out")


def _refuse_foreign_folder(path: Path) -> None:
    if (path / _MANIFEST).exists():
        return
    foreign = sorted(entry.name for entry in path.iterdir() if not _is_unused(entry))
    if foreign:
        raise RunFolderError(f"{path}: holds {foreign[0]!r} but no {_MANIFEST}; give an empty or a new folder as --out")


def _check_identity(path: Path, earlier: Manifest | None, now: Manifest) -> None:
    difference = earlier.difference(now) if earlier else None
    if difference:
        raise RunFolderError(f"{path}: {difference}; go back to resume, or give another --out to start afresh")


def _is_unused(entry: Path) -> bool:
    """Whether a file is what a run leaves that ended before it wrote its manifest."""
    return entry.name in _STARTED and not (entry.suffix == ".jsonl" and entry.stat().st_size)


def read_identity(folder: Path) -> tuple[Manifest, RunConfig]:
    """Return what a folder belongs to, and the settings of its latest run, whose `out` is this folder.

    Raises:
        RunFolderError: it is no run folder, or is damaged.
    """
    manifest, path = Manifest.read(folder / _MANIFEST), folder / "config.yaml"
    if manifest is None:
        raise RunFolderError(f"{folder}: no {_MANIFEST}; give a folder of `tts-orch run`")
    try:
        with files_may_be_gone():
            return manifest, RunConfig(**{**load_config(path), "out": folder})
    except ConfigError as error:
        message = str(error)
        raise RunFolderError(message if message.startswith(str(path)) else f"{path}: {message}") from None


def results_of(found: Mapping[str, ProblemResult], problem_ids: Iterable[str], n: int) -> list[ProblemResult]:
    """Return the results that count for a run of n candidates a problem, in the order of the problems."""
    latest = (found.get(problem_id) for problem_id in problem_ids)
    return [result for result in latest if result and result.n == n]


def read_results(folder: Path) -> dict[str, ProblemResult]:
    """Return the latest result of each problem of a folder, which may be in use.

    Raises:
        RunFolderError: a line is damaged.
    """
    path, results = folder / "results.jsonl", {}
    for line in read_json_lines(path):
        try:
            result = ProblemResult.from_json(line.values)
        except (KeyError, TypeError) as error:
            raise RunFolderError(
                f"{path}:{line.number}: not a result ({error!r}); delete the line to have it redone"
            ) from None
        results[result.problem_id] = result
    return results


def read_summary(folder: Path) -> JsonObject:
    """Return the summary of the latest run in a folder, empty before the first.

    Raises:
        RunFolderError: it is damaged.
    """
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_bytes()) if path.exists() else {}
    except ValueError:
        summary = None
    if not isinstance(summary, dict):
        raise RunFolderError(f"{path}: not a JSON object; delete it")
    return summary
