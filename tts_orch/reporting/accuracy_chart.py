"""Accuracy against the tokens that it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final

from tts_orch.method_config import BestOfN, MajorityVote, MethodConfig
from tts_orch.reporting.curves import Curve, Point, curve_chart
from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.reporting.scales import SHARE, Spacing, axis_over
from tts_orch.reporting.wording import amount, percent, percent_with_interval

__all__ = ["accuracy_chart"]

_WIDE: Final = 6.0  # from this ratio on the token axis is logarithmic
_HOLLOW: Final = "Hollow marks lie further right by the tokens that the reward model read."
_JOINED: Final = "Lines show what a run would have found with fewer of its candidates."


def accuracy_chart(runs: Sequence[tuple[int, ReportedRun]]) -> Markup:
    """Return a chart with a mark a run, and a line where a part of its candidates is a smaller run.

    Args:
        runs: with graded results, and with their numbers in the report.
    """
    curves = [curve for number, run in runs for curve in _curves(number, run)]
    costs = [point.x for curve in curves for point in curve.points]
    spacing: Spacing = "log" if max(costs) > _WIDE * min(costs) > 0 else "linear"
    x = axis_over("generated tokens a problem", costs, spacing, amount)
    chart = curve_chart("Accuracy against generated tokens", x, SHARE, curves)
    remarks = [
        _HOLLOW if any(curve.hollow for curve in curves) else "",
        _JOINED if any(curve.connected for curve in curves) else "",
    ]
    return element("div", chart, element("p", " ".join(filter(None, remarks)), class_="faint"), class_="wide")


def _curves(number: int, run: ReportedRun) -> Iterator[Curve]:
    measure, cost = run.summary["accuracy"]["of_method"], fmean(result.generated_tokens for result in run.graded)
    name = f"{run.label}, {amount(cost)} tokens"
    yield Curve(run.label, number, [_point(cost, measure, name)], connected=False)
    read = fmean(result.reward_tokens for result in run.graded)
    if read:
        text = f"{name} and {amount(read)} read by the reward model"
        yield Curve("", number, [_point(cost + read, measure, text)], connected=False, hollow=True)
    smaller = _smaller_runs(run, cost)
    if smaller:
        mean = measure["mean"]
        yield Curve("", number, [*smaller, Point(cost, mean, mean, mean, name)])


def _point(cost: float, measure: Mapping[str, float], name: str) -> Point:
    return Point(cost, measure["mean"], measure["low"], measure["high"], f"{name}: {percent_with_interval(measure)}")


def _smaller_runs(run: ReportedRun, cost: float) -> list[Point]:
    """Return what the run's own choice finds among k of its candidates, where k candidates are a run of their own."""
    by_size = run.summary["accuracy"].get(_own_measure(run.config.method), {})
    n = run.config.method.n
    at = [(int(k), measure["mean"]) for k, measure in by_size.items() if int(k) < n]
    return [Point(cost * k / n, mean, mean, mean, f"{run.label}, k = {k}: {percent(mean)}") for k, mean in at]


def _own_measure(method: MethodConfig) -> str:
    """Return the measure at k that chooses as a method does, an empty name where there is none."""
    if isinstance(method, BestOfN | MajorityVote):
        measures = {"maximum": "best_at", "weighted": "weighted_at", "majority": "majority_at"}
        return "" if method.stopping else measures.get(method.choice, "")
    return "majority_at"
