"""What stopping rules would have saved on the candidates of finished runs, and what it would have cost in accuracy.

    python benchmarks/early_stopping.py runs/template-majority_vote

In the order of candidates a rule decides by what is there already, so nothing is decoded: each problem's candidates are
shown to the rule one after the other until it stops. What a real run has begun beyond the stop is not counted; it is
less than `in_flight` candidates a problem.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tts_orch.journal import read_finished
from tts_orch.metrics import mean_with_interval, paired_difference
from tts_orch.policies.stopping import verdicts
from tts_orch.policies.stopping.verdicts import Judge, Verdict
from tts_orch.policies.voting import count_votes
from tts_orch.records import Candidate
from tts_orch.run_folder import read_results
from tts_orch.stopping_config import AdaptiveConsistency, EarlyStopping

_RULES: Mapping[str, Judge] = {
    "all candidates": lambda candidates, classes: Verdict(False, [1.0] * len(candidates)),
    "adaptive consistency, Beta": partial(verdicts.of_consistency, AdaptiveConsistency()),
    "adaptive consistency, Dirichlet": partial(verdicts.of_consistency, AdaptiveConsistency(rule="dirichlet")),
    "ESC, windows of 4": partial(verdicts.of_window, EarlyStopping(window=4)),
    "ESC, windows of 5": partial(verdicts.of_window, EarlyStopping()),
}


@dataclass(frozen=True)
class Sampled:
    """The candidates of one problem in path order, their answer classes, and which of them are right."""

    candidates: list[Candidate]
    classes: list[int | None]
    correct: list[bool]


@dataclass(frozen=True)
class Stopped:
    """What a rule made of one problem."""

    is_right: float
    n_candidates: int
    n_tokens: int


def read_samples(folder: Path) -> Iterator[Sampled]:
    """Yield the problems of a run folder that have a reference answer and all their candidates in the journal."""
    finished = {(candidate.problem_id, candidate.path): candidate for candidate in read_finished(folder)}
    for result in read_results(folder).values():
        candidates = [finished.get((result.problem_id, path)) for path in result.candidate_paths]
        present = [candidate for candidate in candidates if candidate is not None]
        if result.candidate_correct and len(present) == len(result.candidate_classes):
            yield Sampled(present, list(result.candidate_classes), list(result.candidate_correct))


def stop(judge: Judge, sampled: Sampled) -> Stopped:
    """Show a problem's candidates to a rule until it stops, and let them vote."""
    for n in range(1, len(sampled.candidates) + 1):
        candidates, classes = sampled.candidates[:n], sampled.classes[:n]
        verdict = judge(candidates, classes)
        if verdict.is_settled:
            break
    votes = [number if weight else None for number, weight in zip(classes, verdict.weights, strict=True)]
    winner = count_votes(votes, verdict.weights, [candidate.self_certainty for candidate in candidates]).winner
    is_right = winner is not None and sampled.correct[classes.index(winner)]
    return Stopped(float(is_right), n, sum(candidate.n_tokens for candidate in candidates))


def main() -> None:
    """Print a table, a row a rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders of majority_vote or best_of_n")
    problems = [sampled for folder in parser.parse_args().folders for sampled in read_samples(folder)]
    outcomes = {name: [stop(judge, sampled) for sampled in problems] for name, judge in _RULES.items()}
    everything = outcomes["all candidates"]
    print(
        f"{len(problems)} problems\n\n| rule | accuracy | less than all | candidates | tokens |\n|---|---|---|---|---|"
    )
    for name, stopped in outcomes.items():
        accuracy = mean_with_interval([one.is_right for one in stopped])
        loss = paired_difference([one.is_right for one in everything], [one.is_right for one in stopped])
        shares = [
            sum(getattr(one, what) for one in stopped) / sum(getattr(one, what) for one in everything)
            for what in ("n_candidates", "n_tokens")
        ]
        print(
            f"| {name} | {accuracy.mean:.3f} | {loss.mean:+.3f} ({loss.low:+.3f} to {loss.high:+.3f}) "
            f"| {shares[0]:.0%} | {shares[1]:.0%} |"
        )


if __name__ == "__main__":
    main()
