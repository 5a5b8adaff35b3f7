"""How much more often one run is right than another, over the problems of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from tts_orch.metrics import paired_difference
from tts_orch.reporting.markup import Content, Markup, element
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.reporting.tables import named_run, table
from tts_orch.reporting.wording import points_with_interval

__all__ = ["differences"]

_MOST_OPEN: Final = 10
_HEADER: Final = ("run", "against", "points (95 %)", "problems")
_MEANING: Final = (
    "Percentage points, over the problems that both runs have finished, unchanged and with a reference answer; "
    "the interval is a bootstrap over these problems."
)


def differences(runs: Sequence[tuple[int, ReportedRun]]) -> Markup | None:
    """Return the difference of each pair of graded runs with its interval, nothing where no two have a common problem.

    Args:
        runs: with their numbers in the report.
    """
    rows = list(_rows(runs))
    if not rows:
        return None
    heading = element("summary", f"Differences between runs, {len(rows)}")
    parts = element("p", _MEANING, class_="faint"), table(_HEADER, rows)
    return element("details", heading, *parts, open=len(rows) <= _MOST_OPEN)


def _rows(runs: Sequence[tuple[int, ReportedRun]]) -> Iterator[list[Content]]:
    for (number, first), (other_number, second) in combinations(runs, 2):
        ours, theirs = _verdicts(first), _verdicts(second)
        common = [problem for problem in ours if problem in theirs]
        if common:
            difference = paired_difference([ours[key] for key in common], [theirs[key] for key in common])
            names = named_run(number, first.label), named_run(other_number, second.label)
            yield [*names, points_with_interval(*difference), len(common)]


def _verdicts(run: ReportedRun) -> dict[tuple[str, str], float]:
    """Return 1 for right and 0 for wrong by problem id and digest."""
    digests = dict(run.manifest.problems)
    return {(result.problem_id, digests[result.problem_id]): float(result.correct is True) for result in run.graded}
