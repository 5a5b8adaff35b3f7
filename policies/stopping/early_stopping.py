"""Early-stopping self-consistency (ESC): stop when a whole window of candidates gives one answer.

Source: arXiv 2401.10480.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.stopping_config import EarlyStopping

__all__ = ["expected_samples", "is_settled"]


def is_settled(rule: EarlyStopping, classes: Sequence[int | None]) -> bool:
    """Whether the last candidates are a full window that agrees; windows do not overlap.

    Args:
        rule: settings.
        classes: answer class of each candidate, None for an abstention, which agrees with nothing.
    """
    if not classes or len(classes) % rule.window:
        return False
    window = set(classes[-rule.window :])
    return len(window) == 1 and None not in window


def expected_samples(shares: Sequence[float], window: int, n: int) -> float:
    """Return how many of n candidates are drawn in the mean before a window agrees.

    Args:
        shares: probability of each answer; what is missing to 1 abstains.
        window: candidates that must agree.
        n: most candidates that are drawn.
    """
    goes_on = 1.0 - sum(share**window for share in shares)
    return sum(min(window, n - start) * goes_on ** (start // window) for start in range(0, n, window))
