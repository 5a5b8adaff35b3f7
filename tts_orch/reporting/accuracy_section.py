"""How often each run is right, what that cost, and how sure the differences are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tts_orch.reporting.accuracy_chart import accuracy_chart
from tts_orch.reporting.differences import differences
from tts_orch.reporting.markup import Content, Markup, element, joined
from tts_orch.reporting.reported_run import ReportedRun
from tts_orch.reporting.tables import named_run, table
from tts_orch.reporting.wording import amount, percent, percent_with_interval

__all__ = ["accuracy_section"]

_HEADER: Final = (
    "run",
    "accuracy (95 %)",
    "generated tokens a problem",
    "reward tokens a problem",
    "full rescores",
    "mean candidate",
    "any candidate",
    "method",
    "n",
    "problems",
    "tau",
    "tokens/s",
    "no answer",
    "failed",
)


def accuracy_section(runs: Sequence[ReportedRun]) -> Markup:
    """Return accuracy against tokens as a chart and a table, and the paired differences between runs."""
    graded = [(number, run) for number, run in enumerate(runs) if run.graded]
    figures = table(_HEADER, [_row(number, run) for number, run in enumerate(runs)])
    parts: list[Content] = [element("h2", "Accuracy")]
    if graded:
        parts += [accuracy_chart(graded), figures, differences(graded)]
    else:
        parts += [element("p", "No problem has a reference answer, so nothing can be right or wrong."), figures]
    return joined(*parts)


def _row(number: int, run: ReportedRun) -> list[Content]:
    accuracy, summary = run.summary["accuracy"] or {}, run.summary
    n_results, n_candidates = len(run.results), max(summary["n_candidates"], 1)
    return [
        named_run(number, run.label),
        percent_with_interval(accuracy.get("of_method")),
        amount(summary["generated_tokens"] / n_results),
        amount(summary["reward_tokens"] / n_results),
        amount(whole / n_results) if (whole := summary["reward_tokens_whole"]) else "–",
        percent_with_interval(accuracy.get("at_1")),
        percent_with_interval(accuracy.get("any_candidate")),
        run.results[0].method,
        run.config.method.n,
        f"{n_results} of {len(run.manifest.problems)}",
        f"{summary['tau']:.2f}",
        f"{summary['tokens_per_s']:.1f}" if summary["tokens_per_s"] else "–",
        percent(summary["n_abstentions"] / n_candidates),
        summary["n_errors"],
    ]
