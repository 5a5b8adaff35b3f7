"""The problems of a run, each with what was found for it; some of them in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from tts_orch.reporting.markup import Markup, element, joined
from tts_orch.reporting.outcomes import Outcome, outcomes
from tts_orch.reporting.problem_view import problem_view
from tts_orch.reporting.recorded_search import read_searches
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.results import ProblemResult

__all__ = ["choose_shown", "problems_section"]

_FILTERS: Final = {
    Outcome.WRONG: ("wrong", "the answer is wrong, or there is none"),
    Outcome.OUTVOTED: ("voting fails", "a candidate is right, but right answers are outnumbered or tied"),
    Outcome.MISSED: ("missed", "the answer is wrong though a candidate is right"),
    Outcome.UNANSWERED: ("no answer", "no candidate that counts has an answer"),
}


def choose_shown(run: ReportedRun, most: int, wanted: Collection[str]) -> set[str]:
    """Return the ids of the problems of a run that are shown in full.

    Args:
        run: the run.
        most: how many to choose: those that voting fails on first, then those that are wrong, then the others, in order.
        wanted: ids to show instead, if there are any.
    """
    if wanted:
        return {result.problem_id for result in run.results if result.problem_id in wanted}
    ranked = sorted(run.results, key=_dullness)
    return {result.problem_id for result in ranked[:most]}


def _dullness(result: ProblemResult) -> int:
    found = outcomes(result)
    if found & {Outcome.OUTVOTED, Outcome.MISSED}:
        return 0
    return 1 if Outcome.WRONG in found else 2


def problems_section(number: int, run: ReportedRun, shown: Collection[str]) -> Markup:
    """Return the problems of a run, with buttons to look at some kinds of them only.

    Args:
        number: of the run in the report.
        run: the run.
        shown: ids of the problems that are shown in full.

    Raises:
        RunFolderError: the journal is damaged.
    """
    searches = read_searches(run.folder, shown)
    views = [
        problem_view(result, run.problems.get(result.problem_id), searches.get(result.problem_id), f"r{number}p{place}")
        for place, result in enumerate(run.results)
    ]
    heading = element("h2", "Problems of ", element("bdi", run.label))
    listed = element("div", *views, class_="problems")
    return joined(heading, _remark(run, shown), *_filters(number, run.results), listed)


def _remark(run: ReportedRun, shown: Collection[str]) -> Markup:
    text = f"{len(shown)} of {len(run.results)} problems can be opened."
    if len(shown) < len(run.results):
        text += " More are shown with --problems N, chosen ones with --problem ID."
    if not run.problems:
        text += f" Their texts are missing: {run.config.problems} is gone or has changed."
    return element("p", text, class_="faint")


def _filters(number: int, results: Sequence[ProblemResult]) -> list[Markup]:
    """Return radio buttons; the style sheet hides what is not of the checked kind."""
    counts = Counter(outcome for result in results for outcome in outcomes(result))
    buttons = [*_filter(number, "all", f"all {len(results)}", "every problem")]
    for outcome, (name, meaning) in _FILTERS.items():
        buttons += _filter(number, outcome, f"{name} {counts[outcome]}", meaning)
    return buttons


def _filter(number: int, kind: str, label: str, meaning: str) -> tuple[Markup, Markup]:
    name = f"kind{number}"
    button = element(
        "input", type="radio", name=name, id=f"{name}-{kind}", class_=f"filter {kind}", checked=kind == "all"
    )
    return button, element("label", label, for_=f"{name}-{kind}", title=meaning)
