"""The table that ends a run."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from tts_orch.json_lines import JsonObject

__all__ = ["summary_table"]


def summary_table(summary: JsonObject, method: str) -> Table:
    """Return the summary of a run as a table for people."""
    table = Table("", "", "95 % interval over problems", box=None, pad_edge=False)
    for row in (*_accuracy_rows(summary["accuracy"] or {}, method), *_decoding_rows(summary)):
        table.add_row(*row)
    return table


def _accuracy_rows(accuracy: JsonObject, method: str) -> Iterator[tuple[str, ...]]:
    if not accuracy:
        return
    names = {"one candidate": "at_1", method: "of_method", "any candidate": "any_candidate"}
    for name, measure in ((name, accuracy[key]) for name, key in names.items()):
        interval = f"{100 * measure['low']:.1f} - {100 * measure['high']:.1f} %"
        yield f"accuracy, {name}", f"{100 * measure['mean']:.1f} %", interval


def _decoding_rows(summary: JsonObject) -> Iterator[tuple[str, ...]]:
    yield "problems", f"{summary['n_finished']} of {summary['n_problems']}"
    yield "candidates", f"{summary['n_candidates']}"
    yield "without an answer", f"{summary['n_abstentions']}, of them {summary['n_errors']} failed"
    yield "tokens", f"{summary['kept_tokens']:,} kept of {summary['generated_tokens']:,}"
    yield from _reuse_rows(summary)
    yield "tokens/s", f"{summary['tokens_per_s']:.1f}"
    yield f"tau ({summary['verification']})", f"{summary['tau']:.2f}"
    for name, share in summary.get("drafters", {}).items():
        drafted, accepted = 100 * share["share_of_drafted"], 100 * share["share_of_accepted"]
        yield f"drafts of {name}", f"{drafted:.0f} %, of accepted {accepted:.0f} %"
    counters = summary.get("counters", {})
    if counters.get("pool_requests"):
        waited, hidden = counters["pool_waited_seconds"], counters["pool_hidden_seconds"]
        yield "drafter pool", f"{waited:,.1f} s waited, {hidden:,.1f} hidden"
    if n_failures := summary.get("store", {}).get("failures"):
        yield "statistics store", f"{n_failures:,.0f} exchanges failed, which costs speed alone"
    plain = summary["plain_decoding"]
    if plain:
        yield "against plain decoding", f"{plain['speedup']:.2f} x, {_compared_tokens(plain)}"


def _reuse_rows(summary: JsonObject) -> Iterator[tuple[str, ...]]:
    """Say how much was not computed again, because it was kept."""
    counters = summary.get("counters", {})
    if counters.get("cached_tokens"):
        yield "prefill tokens", f"{counters['prefill_tokens']:,.0f} computed, {counters['cached_tokens']:,.0f} kept"
    if summary["reward_tokens_whole"]:
        yield "reward tokens", f"{summary['reward_tokens']:,} read of {summary['reward_tokens_whole']:,}"


def _compared_tokens(plain: JsonObject) -> str:
    is_keyed = plain.get("verification", "keyed") == "keyed"
    return f"the same {plain['n_tokens']:,} tokens" if is_keyed else "the same law only"
