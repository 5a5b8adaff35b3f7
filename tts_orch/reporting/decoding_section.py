"""What decoding did: acceptance length, speed, how candidates ended, and who drafted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tts_orch.json_lines import JsonObject
from tts_orch.reporting.bars import Bar, bar_chart
from tts_orch.reporting.markup import Markup, element, joined
from tts_orch.reporting.reported_run import ReportedRun

__all__ = ["decoding_section"]

_ENDS: Final = {
    "eos": "eos",
    "stop_string": "stop string",
    "answer_found": "answer found",
    "length": "length",
    "step": "unfinished step",
    "step_length": "unfinished step",
    "low_confidence": "low confidence",
    "cancelled": "cancelled",
    "error": "error",
}
"""Name of each finish reason."""
_COLOURS: Final = {
    "eos": 2,
    "stop string": 0,
    "answer found": 5,
    "length": 1,
    "unfinished step": 4,
    "low confidence": 3,
    "cancelled": 7,
    "error": 6,
}


def decoding_section(runs: Sequence[ReportedRun]) -> Markup:
    """Return acceptance length, speed and finish reasons of all runs, and what each drafter gave where several drafted."""
    charts = [_taus(runs), _speeds(runs), _finish_reasons(runs), *_drafters(runs)]
    return joined(element("h2", "Decoding"), element("div", *charts, class_="charts"))


def _taus(runs: Sequence[ReportedRun]) -> Markup:
    bars = [Bar(run.label, {"tau": run.summary["tau"]}, f"{run.summary['tau']:.2f}") for run in runs]
    return bar_chart("tau: committed tokens a verify step", bars, {"tau": 0})


def _speeds(runs: Sequence[ReportedRun]) -> Markup:
    bars = [Bar(run.label, {"tokens/s": run.summary["tokens_per_s"]}, _speed(run.summary)) for run in runs]
    return bar_chart("Decoding speed, tokens/s", bars, {"tokens/s": 0})


def _speed(summary: JsonObject) -> str:
    plain = summary.get("plain_decoding")
    comparison = f" ({plain['speedup']:.2f} × plain)" if plain else ""
    return f"{summary['tokens_per_s']:.1f}{comparison}"


def _finish_reasons(runs: Sequence[ReportedRun]) -> Markup:
    bars = [_ends(run) for run in runs]
    numbers = {name: number for name, number in _COLOURS.items() if any(name in bar.parts for bar in bars)}
    return bar_chart("How candidates ended, share of each run", bars, numbers)


def _ends(run: ReportedRun) -> Bar:
    reasons: Counter[str] = Counter(run.summary["finish_reasons"])
    n = reasons.total() or 1
    parts: Counter[str] = Counter()
    for reason, name in _ENDS.items():
        parts[name] += reasons[reason]
    shares = {name: count / n for name, count in parts.items() if count}
    return Bar(run.label, shares, f"{n:,}, {run.summary['n_abstentions']:,} no answer")


def _drafters(runs: Sequence[ReportedRun]) -> Iterator[Markup]:
    """Yield a chart of who drafted, if several drafters did in any run."""
    composed = [(run.label, members) for run in runs if (members := run.summary.get("drafters"))]
    names = dict.fromkeys(name for _, members in composed for name in members)
    bars = [
        Bar(f"{label}: {what}", _shares(members, what), f"{sum(one[what] for one in members.values()):,.0f}")
        for label, members in composed
        for what in ("drafted", "accepted")
    ]
    if bars:
        yield bar_chart("Draft nodes by drafter, share of each run", bars, {name: i for i, name in enumerate(names)})


def _shares(members: JsonObject, what: str) -> dict[str, float]:
    return {name: one[f"share_of_{what}"] for name, one in members.items()}
