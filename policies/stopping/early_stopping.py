"""Early-stopping self-consistency (ESC): stop when a whole window of candidates gives one answer.

Source: arXiv 2401.10480.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.stopping_config import EarlyStopping

__all__ = ["is_settled"]


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
