"""What `tts-orch run` does with its settings: search, journal, grade, sum up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rich.console import Console

from tts_orch.budget_config import NO_LIMITS
from tts_orch.cli.plain_comparison import compare_with_plain
from tts_orch.cli.progress import RunProgress, waiting
from tts_orch.cli.signals import heed_signals
from tts_orch.cli.summary_table import summary_table
from tts_orch.config import RunConfig
from tts_orch.errors import ProblemError
from tts_orch.json_lines import JsonObject
from tts_orch.policies.drafting.member_counts import member_shares
from tts_orch.records import Problem
from tts_orch.results import ProblemResult
from tts_orch.run_folder import RunFolder
from tts_orch.summary import DecodingTime, summarise
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render

if TYPE_CHECKING:
    from tts_orch.orchestrator import Orchestrator

__all__ = ["solve"]

# What a stop finds finished is shorter than what it does not; keyed verification finds the same tokens again instead.
_DRAWN_ANEW: Final = (
    "finished candidates are kept, the rest is drawn anew: rejection verification promises the law, not the same tokens, "
    "and the stop in between favours short candidates"
)
_SPENT: Final = "a budget is spent, {} problems are not done: the same command goes on with them"


def solve(config: RunConfig) -> None:
    """Search for the answers to the problems of a run, or go on with it, and print the summary.

    Raises:
        OrchestratorError: the run cannot begin or go on.
        KeyboardInterrupt: stopped by SIGINT or SIGTERM; its message says how to go on.
    """
    heed_signals()
    problems = read_problems(config.problems)[: config.limit]
    with RunFolder(config, problems) as folder:
        try:
            summary = _solve(config, problems, folder, console := Console())
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; run the same command again to go on in {folder.path}") from None
        console.print(summary_table(summary, config.method.name), f"\n{folder.path}", sep="")


def _solve(config: RunConfig, problems: Sequence[Problem], folder: RunFolder, console: Console) -> JsonObject:
    pending = {problem.id: problem for problem in folder.pending}
    standing = [result for result in folder.results if result.problem_id not in pending]
    progress = RunProgress(len(problems), config.engine.verification, standing)
    earlier = folder.read_summary()
    with waiting(console, f"loading {config.engine.target}"):
        started = _orchestrator(config, progress)
    with started as orchestrator:
        heed_signals()  # once more: Ray has set a handler of its own
        _check_prompts(config, pending.values(), orchestrator)
        _begin(folder, orchestrator)
        if folder.half_done and config.engine.verification == "rejection":
            console.print(_DRAWN_ANEW, highlight=False, soft_wrap=True)
        try:
            with progress.shown(console):
                _search(orchestrator, config, folder, pending, progress)
        finally:
            summary = _sum_up(folder, len(problems), progress, earlier)
            summary["verification"] = config.engine.verification
            summary["workers"] = orchestrator.fingerprints
            folder.note_fingerprints(orchestrator.fingerprints.values())
            folder.write_summary(summary)
        counters = orchestrator.statistics()  # of this run alone, where it went on with an earlier one
        summary |= {"store": _store_counters(counters), "drafters": member_shares(counters), "counters": counters}
        folder.write_summary(summary)
        folder.write_results()
        if config.budget != NO_LIMITS and folder.pending:
            console.print(_SPENT.format(len(folder.pending)), highlight=False, soft_wrap=True)
        if config.compare_plain:
            comparison = compare_with_plain(orchestrator, config, problems[: config.compare_plain])
            summary |= {"plain_decoding": {**asdict(comparison), "speedup": comparison.speedup}}
            folder.write_summary(summary)
    return summary


def _orchestrator(config: RunConfig, progress: RunProgress) -> Orchestrator:
    from tts_orch.orchestrator import Orchestrator  # loads torch and Ray; a mistake found before needs neither

    return Orchestrator(
        engine=config.engine,
        workers=config.workers,
        placement=config,
        store=config,
        address=config.address,
        template=config.template,
        task=config,
        reward=config.reward,
        on_candidate=progress.on_candidate,
        on_tokens=progress.on_tokens,
    )


def _store_counters(counters: Mapping[str, float]) -> JsonObject:
    """Return what was shared through the store of draft statistics, and what went wrong there, summed over the workers."""
    prefix = "store_"
    return {name.removeprefix(prefix): value for name, value in counters.items() if name.startswith(prefix)}


def _check_prompts(config: RunConfig, problems: Iterable[Problem], orchestrator: Orchestrator) -> None:
    """Refuse prompts that the target cannot be asked, before anything is written or decoded.

    Raises:
        ProblemError: a prompt cannot be rendered, or leaves no room for an output.
    """
    max_context = min(worker.max_context for worker in orchestrator.workers)
    for problem in problems:
        try:
            n_tokens = len(render(problem, orchestrator.tokenizer, config.template, config))
        except ProblemError as error:
            raise ProblemError(f"{config.problems}: {error}") from None
        if n_tokens >= max_context:
            raise ProblemError(
                f"{config.problems}: problem {problem.id!r}: {n_tokens} prompt tokens, but {config.engine.target} "
                f"reads at most {max_context} with its output; shorten it"
            )


def _begin(folder: RunFolder, orchestrator: Orchestrator) -> None:
    worker, *_ = orchestrator.workers
    target = {
        "weights": worker.weights_id,
        "numerics": worker.numerics,
        "dtype": worker.dtype,
        "max_context": worker.max_context,
        "reward": orchestrator.reward.identity if orchestrator.reward else None,
    }
    folder.begin(target, [worker.fingerprint for worker in orchestrator.workers])


def _search(
    orchestrator: Orchestrator,
    config: RunConfig,
    folder: RunFolder,
    problems: Mapping[str, Problem],
    progress: RunProgress,
) -> None:
    found = orchestrator.search_many(
        problems.values(),
        config.method,
        seed=config.seed,
        law=config.law,
        journal=folder.journal,
        attempt=folder.n_earlier_runs,
        budget=config.budget,
    )
    with closing(found):
        for search_result in found:
            result = ProblemResult.of(problems[search_result.problem_id], search_result, config.method, config.task)
            folder.add(result)
            progress.on_result(result)


def _sum_up(folder: RunFolder, n_problems: int, progress: RunProgress, earlier: JsonObject) -> JsonObject:
    before = DecodingTime(earlier.get("wall_time_s", 0.0), earlier.get("decoded_tokens", 0))
    summary = summarise(folder.results, n_problems, before + progress.time)
    return {**summary, "plain_decoding": earlier.get("plain_decoding")}
