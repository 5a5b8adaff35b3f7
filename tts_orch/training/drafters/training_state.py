"""The state of a training on disk: it goes on from there with the same weights, and with the same draft vocabulary only."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tts_orch.atomic_file import write_atomically
from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.vocabulary_maps import map_weights
from tts_orch.errors import ConfigError

__all__ = ["restored_reports", "save_state"]


def save_state(
    file: Path, head: DraftHead, optimiser: torch.optim.Optimizer, reports: Sequence[Mapping[str, Any]]
) -> None:
    """Write head, maps of its vocabulary, optimiser and reports.

    Raises:
        RunError: the file cannot be written.
    """
    state = {
        "head": head.state_dict(),
        "maps": map_weights(head.vocabulary),
        "optimiser": optimiser.state_dict(),
        "reports": [dict(report) for report in reports],
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_atomically(file, content.getvalue())


def restored_reports(file: Path, head: DraftHead, optimiser: torch.optim.Optimizer) -> list[Mapping[str, Any]]:
    """Load what `save_state` wrote into head and optimiser, and return the reports; none without a file.

    Raises:
        ConfigError: the file is of a head for another draft vocabulary.
    """
    if not file.exists():
        return []
    state = torch.load(file, weights_only=True, map_location="cpu")
    if not _are_equal(state.get("maps", {}), map_weights(head.vocabulary)):  # once there were heads of all tokens alone
        raise ConfigError(
            f"vocabulary: {file} is a training for another draft vocabulary; give that one, or another --out"
        )
    head.load_state_dict(state["head"])
    optimiser.load_state_dict(state["optimiser"])
    reports: list[Mapping[str, Any]] = state["reports"]
    return reports


def _are_equal(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)
