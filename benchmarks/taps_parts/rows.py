"""What is compared: heads alone, how two or three of them work together, and STAND without and with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tts_orch.config import DraftingConfig

__all__ = ["HINDSIGHTS", "ROWS", "Row", "drafting"]

_PAIR: Final = ("math", "chat")
_STAND: Final = {"drafter": "stand", "update_from_rejected": False}
"""What a replay can tell exactly."""
HINDSIGHTS: Final[Mapping[str, str | None]] = {"hindsight": "mixed", "hindsight of two": None}
"""Need no replay: what the heads of the pair did alone is chosen from, question by question; near ties go to the mixed head, as
in the paper, or to the surer one all the same."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the tables.

    Attributes:
        name: its own.
        heads: names of the folders of heads.
        settings: of drafting, besides what the benchmark fixes.
        n_trees: how many trees' worth of nodes it verifies.
    """

    name: str
    heads: tuple[str, ...]
    settings: Mapping[str, Any]
    n_trees: int = 1

    @property
    def members(self) -> tuple[str, ...]:
        """Who drafts, in the order of a composition."""
        return (*(["stand"] if self.settings.get("drafter") == "stand" else []), *self.heads)

    @property
    def is_greedy(self) -> bool:
        """Whether its drafts do not look at the verifier's noise."""
        return self.settings.get("draft_sampling") == "deterministic"


ROWS: Final = (
    *(Row(head, (head,), {}) for head in ("math", "chat", "code", "mixed", "double", "averaged")),
    Row("entropy", _PAIR, {"routing": "entropy"}),
    Row("confidence", _PAIR, {"routing": "confidence"}),
    Row("first_steps", _PAIR, {"routing": "first_steps"}),
    Row("concatenated", _PAIR, {"routing": "concatenated"}, n_trees=2),
    Row("merged", _PAIR, {"routing": "merged"}),
    Row("confidence of three", (*_PAIR, "code"), {"routing": "confidence"}),
    Row("merged of three", (*_PAIR, "code"), {"routing": "merged"}),
    Row("stand", (), _STAND),
    Row("stand + routed", _PAIR, {**_STAND, "routing": "expected_tokens"}),
    Row("stand + merged", _PAIR, {**_STAND, "routing": "merged"}),
    Row("math, greedy drafts", ("math",), {"draft_sampling": "deterministic"}),
    Row("chat, greedy drafts", ("chat",), {"draft_sampling": "deterministic"}),
    Row("merged, greedy drafts", _PAIR, {"routing": "merged", "draft_sampling": "deterministic"}),
)
"""The pair is the paper's; greedy drafts are its drafts too, the others look at the verifier's noise where there is any."""


def drafting(row: Row, heads: Path, n_nodes: int, depth: int, width: int) -> DraftingConfig:
    """Return the settings of a row with trees of a fixed size.

    Args:
        row: heads and routing.
        heads: folder with a folder a head.
        n_nodes: draft nodes of a tree.
        depth: of trees.
        width: beams of trees.

    Raises:
        ConfigError: a head is missing.
    """
    folders = {name: heads / name for name in row.heads}
    size = {"node_budget": False, "max_nodes": row.n_trees * n_nodes}
    if row.heads:
        size |= {"draft_depth": depth, "draft_width": width}
    return DraftingConfig(**{"drafter": "neural", "drafters": folders, **size, **row.settings})
