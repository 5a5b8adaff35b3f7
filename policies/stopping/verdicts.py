"""What each rule says of the candidates so far: whether they settle the answer, and how much each of them may vote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tts_orch.policies.stopping import adaptive_consistency, early_stopping
from tts_orch.policies.stopping.deepconf import has_consensus, vote_weights
from tts_orch.records import Candidate
from tts_orch.stopping_config import AdaptiveConsistency, DeepConf, EarlyStopping

__all__ = ["Judge", "Verdict", "of_confidence", "of_consistency", "of_window"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule's view of the candidates so far.

    Attributes:
        is_settled: whether sampling may stop.
        weights: vote of each candidate if it does, or if there are no more.
    """

    is_settled: bool
    weights: list[float]


Judge: TypeAlias = Callable[[Sequence[Candidate], Sequence[int | None]], Verdict]
"""From candidates and the answer class of each to what a rule says of them."""


def of_consistency(
    rule: AdaptiveConsistency, candidates: Sequence[Candidate], classes: Sequence[int | None]
) -> Verdict:
    """Stop when the leading answer leads for good; every candidate votes the same."""
    return Verdict(adaptive_consistency.is_settled(rule, classes), [1.0] * len(candidates))


def of_window(rule: EarlyStopping, candidates: Sequence[Candidate], classes: Sequence[int | None]) -> Verdict:
    """Stop when a window agrees; then its answer alone is voted for, whatever most of the earlier candidates gave."""
    if early_stopping.is_settled(rule, classes):
        return Verdict(True, [float(number == classes[-1]) for number in classes])
    return Verdict(False, [1.0] * len(candidates))


def of_confidence(
    rule: DeepConf, least: float, candidates: Sequence[Candidate], classes: Sequence[int | None]
) -> Verdict:
    """Stop at a consensus of the solutions that never fell below the least confidence, weighted by their lowest window."""
    weights = vote_weights(candidates, "lowest", least)
    return Verdict(has_consensus(classes, weights, rule.consensus), weights)
