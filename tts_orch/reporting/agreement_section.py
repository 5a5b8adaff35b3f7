"""How far the candidates of a problem agree, and how often the answer is right then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tts_orch.reporting.bars import Bar, bar_chart
from tts_orch.reporting.markup import Markup, element, joined
from tts_orch.reporting.outcomes import agreement
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.results import ProblemResult

__all__ = ["agreement_section"]

_VERDICTS: Final = {"right": 2, "wrong": 1, "not graded": 7}
_N_BINS: Final = 5


def agreement_section(runs: Sequence[ReportedRun]) -> Markup:
    """Return how far the candidates of a problem agree, and how often the answer is right then."""
    charts = [_agreement(run) for run in runs]
    meaning = (
        "Problems by the share of their candidates that give the most frequent answer; "
        "candidates without an answer count among all."
    )
    remark = element("p", meaning, class_="faint")
    return joined(element("h2", "Agreement"), remark, element("div", *charts, class_="charts"))


def _agreement(run: ReportedRun) -> Markup:
    bins: list[list[ProblemResult]] = [[] for _ in range(_N_BINS)]
    for result in run.results:
        bins[min(int(agreement(result) * _N_BINS), _N_BINS - 1)].append(result)
    bars = [
        Bar(f"{100 * place // _N_BINS} – {100 * (place + 1) // _N_BINS} % agree", _verdicts(group), _share(group))
        for place, group in enumerate(bins)
    ]
    used = {verdict for group in bins for verdict in _verdicts(group)}
    return bar_chart(run.label, bars, {name: number for name, number in _VERDICTS.items() if name in used})


def _verdicts(results: Iterable[ProblemResult]) -> dict[str, float]:
    counts = dict.fromkeys(_VERDICTS, 0.0)
    for result in results:
        counts[{True: "right", False: "wrong", None: "not graded"}[result.correct]] += 1
    return {name: count for name, count in counts.items() if count}


def _share(results: Sequence[ProblemResult]) -> str:
    n_right = sum(result.correct is True for result in results)
    is_graded = any(result.correct is not None for result in results)
    return f"{n_right} of {len(results)} right" if is_graded else str(len(results))
