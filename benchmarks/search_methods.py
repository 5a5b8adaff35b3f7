"""Search methods beside each other: accuracy of finished runs on the same problems, at equal generated tokens.

    python benchmarks/search_methods.py --samples runs/best_of_16 runs/dvts runs/beam_search

The run after --samples has whole solutions with scores: a best_of_n run with a reward model. From its candidates come the
mean of one sample, a majority vote, the best of them, a weighted vote, and whether any is right, each at the largest k
whose mean tokens are not above those of the run it is compared with. Differences are paired over the problems that both
have, with a bootstrap interval. Printed as Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tts_orch.metrics import best_at_k, majority_at_k, mean_with_interval, paired_difference, pass_at_k, weighted_at_k
from tts_orch.reporting.reported_run import ReportedRun, read_runs
from tts_orch.results import ProblemResult

_GOLD = -1


def gold_classes(result: ProblemResult) -> list[int | None]:
    """Return the answer class of each candidate, one number for the right one."""
    pairs = zip(result.candidate_classes, result.candidate_correct, strict=True)
    return [_GOLD if is_right and number is not None else number for number, is_right in pairs]


def one_sample(result: ProblemResult, _k: int) -> float:
    """Return the share of right samples."""
    return pass_at_k(len(result.candidate_correct), sum(result.candidate_correct), 1)


def any_sample(result: ProblemResult, k: int) -> float:
    """Return how often one of k samples is right."""
    return pass_at_k(len(result.candidate_correct), sum(result.candidate_correct), k)


def majority(result: ProblemResult, k: int) -> float:
    """Return how often a vote of k samples is right."""
    return majority_at_k(gold_classes(result), _GOLD, k)


def best(result: ProblemResult, k: int) -> float:
    """Return how often the best-scored of k samples is right."""
    return best_at_k(result.candidate_scores, result.candidate_correct, k)


def weighted(result: ProblemResult, k: int) -> float:
    """Return how often a vote of k samples weighted by score is right."""
    return weighted_at_k(gold_classes(result), [score or 0.0 for score in result.candidate_scores], _GOLD, k)


_OF_SAMPLES: Mapping[str, Callable[[ProblemResult, int], float]] = {
    "one sample": one_sample,
    "majority vote": majority,
    "best of k": best,
    "weighted vote": weighted,
    "any of k": any_sample,
}


@dataclass(frozen=True)
class Row:
    """A method's outcome on every problem, in order, and what it took."""

    name: str
    values: Sequence[float]
    generated_tokens: float
    reward_tokens: float


def rows_of_samples(samples: ReportedRun, problem_ids: Sequence[str], k: int) -> list[Row]:
    """Return what k of a run's samples give by each way to choose."""
    results = {result.problem_id: result for result in samples.graded}
    chosen = [results[problem_id] for problem_id in problem_ids]
    tokens, read = (
        sum(getattr(result, what) / len(result.candidate_correct) for result in chosen) / len(chosen)
        for what in ("generated_tokens", "reward_tokens")
    )
    rows = []
    for name, value in _OF_SAMPLES.items():
        n = 1 if name == "one sample" else k
        scored = name in ("best of k", "weighted vote")
        values = [value(result, n) for result in chosen]
        rows.append(Row(name.replace("k", str(k)), values, n * tokens, n * read if scored else 0.0))
    return rows


def row_of_search(run: ReportedRun, problem_ids: Sequence[str]) -> Row:
    """Return a run's own outcome."""
    results = {result.problem_id: result for result in run.graded}
    chosen = [results[problem_id] for problem_id in problem_ids]
    name = f"{run.results[0].method}, n = {run.config.method.n}"
    generated, read = (
        sum(getattr(result, what) for result in chosen) / len(chosen) for what in ("generated_tokens", "reward_tokens")
    )
    return Row(name, [float(result.correct is True) for result in chosen], generated, read)


def table(rows: Sequence[Row], against: str) -> str:
    """Return rows with their differences to the first one whose name starts with `against`."""
    reference = next(row for row in rows if row.name.startswith(against))
    lines = [
        f"| method | accuracy (95 %) | minus {reference.name} (95 %) | generated tokens | reward tokens |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        mean, low, high = (100 * value for value in mean_with_interval(row.values))
        difference = [100 * value for value in paired_difference(row.values, reference.values)]
        apart = "" if row is reference else f"{difference[0]:+.1f} ({difference[1]:+.1f} to {difference[2]:+.1f})"
        tokens = f"{row.generated_tokens:,.0f} | {row.reward_tokens:,.0f}"
        lines.append(f"| {row.name} | {mean:.1f} ({low:.1f} to {high:.1f}) | {apart} | {tokens} |")
    return "\n".join(lines)


def affordable(samples: ReportedRun, tokens: float) -> int:
    """Return how many samples cost at most so many tokens a problem: at least 1, at most all."""
    n = len(samples.graded[0].candidate_correct)
    mean = sum(result.generated_tokens for result in samples.graded) / len(samples.graded) / n
    return max(1, min(n, int(tokens / mean)))


def main() -> None:
    """Print one table of all runs, then one for each run at its own tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=Path, required=True, help="run folder of best_of_n with a reward model")
    parser.add_argument("runs", type=Path, nargs="*", help="run folders of searches over steps, on the same problems")
    parser.add_argument("--id-ends", default="", help="only problems whose id ends so, such as -2")
    arguments = parser.parse_args()
    samples, *searches = read_runs([arguments.samples, *arguments.runs])
    common = set.intersection(*({result.problem_id for result in run.graded} for run in (samples, *searches)))
    ids = [one.problem_id for one in samples.graded if one.problem_id in common]
    ids = [problem_id for problem_id in ids if problem_id.endswith(arguments.id_ends)]
    found = [row_of_search(run, ids) for run in searches]
    n = len(samples.graded[0].candidate_correct)
    print(f"{len(ids)} problems\n\n{table([*rows_of_samples(samples, ids, n), *found], 'majority')}")
    for row in found:
        k = affordable(samples, row.generated_tokens)
        if k < n:
            print(f"\nAt the tokens of {row.name}:\n\n{table([*rows_of_samples(samples, ids, k), row], 'majority')}")


if __name__ == "__main__":
    main()
