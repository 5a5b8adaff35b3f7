"""What more samples bring: accuracy by the number of candidates, over all subsets of those that were sampled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tts_orch.json_lines import JsonObject
from tts_orch.reporting.curves import Curve, Point, curve_chart
from tts_orch.reporting.markup import Markup, element, joined
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.reporting.scales import SHARE, axis_over
from tts_orch.reporting.wording import percent_with_interval

__all__ = ["sampling_section"]

_MEASURES: Final[Mapping[str, str]] = {
    "pass_at": "pass@k: any is right",
    "best_at": "best@k: the best-scored is right",
    "weighted_at": "weighted@k: the vote by score is right",
    "majority_at": "maj@k: the majority is right",
    "pass_hat_at": "pass^k: all are right",
}
_MEANING: Final = (
    "Each value is a mean over all ways to draw k of a problem's candidates, or over 2000 of them for weighted@k; candidates "
    "that failed or have no answer count as wrong. Bands are 95 % intervals over problems. Searches over steps have no "
    "such curves: a part of a search is not a smaller search."
)


def sampling_section(runs: Sequence[ReportedRun]) -> Markup | None:
    """Return a chart a run that sampled independent candidates, nothing if none did."""
    charts = [
        _chart(run.label, run.summary["accuracy"])
        for run in runs
        if run.summary["accuracy"] and run.summary["accuracy"]["pass_at"]
    ]
    if not charts:
        return None
    meaning = element("p", _MEANING, class_="faint")
    return joined(element("h2", "More candidates"), meaning, element("div", *charts, class_="charts"))


def _chart(label: str, accuracy: JsonObject) -> Markup:
    sizes = [int(k) for k in accuracy["pass_at"]]
    return curve_chart(label, axis_over("k, candidates", sizes, "binary"), SHARE, list(_curves(accuracy)))


def _curves(accuracy: JsonObject) -> Iterator[Curve]:
    for number, (key, name) in enumerate(_MEASURES.items()):
        by_size = accuracy.get(key)
        if by_size:
            yield Curve(name, number, [_point(int(k), name, measure) for k, measure in by_size.items()])


def _point(k: int, name: str, measure: Mapping[str, float]) -> Point:
    text = f"k = {k}, {name}: {percent_with_interval(measure)}"
    return Point(k, measure["mean"], measure["low"], measure["high"], text)
