"""Placeholder while the rejection walk is written."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tts_orch.engine.verification import Walk

__all__ = ["verify_by_rejection"]


def verify_by_rejection(walks: Sequence[Walk], logits: torch.Tensor) -> None:
    """Walk all trees by recursive rejection sampling."""
    raise NotImplementedError
