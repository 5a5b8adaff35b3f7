"""How often a draft of k siblings is accepted: keyed coupling beside recursive rejection sampling, from the same laws.

Given the target's law p and the draft's law q of a position, keyed verification accepts if the token with the largest
`log p + noise` is among the k with the largest `log q + noise`; recursive rejection sampling accepts the first of k draws
from q, without replacement, that passes against the residual of p. Both are estimated from random draws, given the token
that was committed: on the way through a text, what is accepted leads to contexts that are known better.

Source: arXiv 2408.07978 (shared noise), arXiv 2402.12374 (sampling without replacement).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["aligned_laws", "draft_length", "keyed_acceptance", "rejection_acceptance"]

Laws = NDArray[np.float64]
_LEAST = 1e-12  # what was committed had a chance, though no list has it


def aligned_laws(
    law_ids: NDArray[np.integer],
    law_probs: NDArray[np.floating],
    draft_ids: NDArray[np.integer],
    draft_probs: NDArray[np.floating],
    tokens: NDArray[np.integer],
) -> tuple[Laws, Laws, NDArray[np.int64]]:
    """Put both laws of many positions on common columns: the draft's ids, then the target's others.

    Ids that the draft knows and the target's list does not have get no target probability.

    Args:
        law_ids: `[n, k]` listed ids of the target's law.
        law_probs: `[n, k]` their probabilities.
        draft_ids: `[n, m]` ids of the draft's law, -1 where a position has fewer.
        draft_probs: `[n, m]` their probabilities, 0 where there is no id.
        tokens: `[n]` committed tokens.

    Returns:
        p and q `[n, m + k + 1]`, the last column what the target's list leaves, and `[n]` columns of the committed tokens.
    """
    is_same = (draft_ids[:, :, None] == law_ids[:, None, :]) & (draft_probs[:, :, None] > 0)  # [n, m, k]
    on_draft = (is_same * law_probs[:, None, :]).sum(axis=2)
    others = np.where(is_same.any(axis=1), 0.0, law_probs)
    rest = np.maximum(0.0, 1 - law_probs.sum(axis=1, dtype=np.float64))[:, None]
    p = np.concatenate([on_draft, others, rest], axis=1)
    q = np.concatenate([draft_probs, np.zeros_like(others), np.zeros_like(rest)], axis=1)
    nowhere = np.full((len(tokens), 1), True)
    is_token = [(draft_ids == tokens[:, None]) & (draft_probs > 0), law_ids == tokens[:, None], nowhere]
    return p, q, np.argmax(np.concatenate(is_token, axis=1), axis=1)


def keyed_acceptance(
    p: Laws, q: Laws, committed: NDArray[np.int64], siblings: int, draws: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return `[n]` estimates of the acceptance of `siblings` keyed draws at positions that committed these columns."""
    accepted = np.zeros(len(p))
    log_q = _log(q)
    for _ in range(draws):
        drafted = log_q + _noise_given(p, committed, generator)
        mine = np.take_along_axis(drafted, committed[:, None], axis=1)
        accepted += ((drafted > mine).sum(axis=1) < siblings) & (mine[:, 0] > -np.inf)
    return accepted / draws


def _noise_given(p: Laws, committed: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw Gumbel noise given where `log p + noise` is largest: the maximum, then what stays below it (arXiv 1411.0030)."""
    rows, log_p = np.arange(len(p)), _log(np.maximum(p, _LEAST))
    largest = generator.gumbel(size=len(p))
    noise = -np.log(np.exp(log_p - largest[:, None]) + generator.exponential(size=p.shape))
    noise[rows, committed] = largest - log_p[rows, committed]
    return noise


def rejection_acceptance(
    p: Laws, q: Laws, committed: NDArray[np.int64], siblings: int, draws: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return `[n]` estimates of the acceptance of `siblings` draws by recursive rejection sampling, given what it emitted."""
    chances = [_chance_as_draft(p, q, committed, siblings, generator) for _ in range(draws)]
    mine = np.take_along_axis(p, committed[:, None], axis=1)[:, 0]
    return np.asarray(np.mean(chances, axis=0) / np.maximum(mine, _LEAST))


def _chance_as_draft(
    p: Laws, q: Laws, committed: NDArray[np.int64], siblings: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return `[n]` chances that a column is drawn and passes, each given one random sequence of the draws before it."""
    rows, reached, chance = np.arange(len(p)), np.ones(len(p)), np.zeros(len(p))
    for _ in range(siblings):
        chance += reached * np.minimum(p, q)[rows, committed]
        has_draw: NDArray[np.bool_] = np.asarray(q.any(axis=1))
        drawn = np.argmax(_log(q) + generator.gumbel(size=q.shape), axis=1)
        passes = np.minimum(1.0, p[rows, drawn] / np.where(has_draw, q[rows, drawn], 1.0))
        reached *= np.where(has_draw, 1 - passes, 1.0)
        p = np.where(has_draw[:, None], _normalised(np.maximum(p - q, 0.0)), p)
        q = q.copy()
        q[rows, drawn] = 0.0
        q = _normalised(q)
    return chance


def draft_length(acceptance: NDArray[np.float64], depth: int) -> float:
    """Return tau of trees of so many levels with equal siblings everywhere, from `[t]` acceptances along a text.

    A verify step that begins at a position ends behind the first rejected level, where the next one begins; tau is the
    length of the text over the expected number of steps.
    """
    begins = np.zeros(len(acceptance) + depth + 1)  # chance that a step begins there
    begins[0] = 1.0
    reachable = np.append(acceptance, np.zeros(depth))
    for position in range(len(acceptance)):
        reached = begins[position] * np.append(1.0, np.cumprod(reachable[position : position + depth]))
        begins[position + 1 : position + depth + 2] += reached - np.append(reached[1:], 0.0)
    return float(len(acceptance) / begins[: len(acceptance)].sum())


def _log(law: Laws) -> Laws:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(law))


def _normalised(law: Laws) -> Laws:
    total = law.sum(axis=1, keepdims=True)
    return np.asarray(law / np.where(total > 0, total, 1.0))
