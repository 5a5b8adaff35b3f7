"""What `tts-orch vocabulary trim` says of the sizes it looked at: a table, a file of figures, a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from tts_orch.atomic_file import write_atomically
from tts_orch.replay.draft_sizes import SizeSpeed
from tts_orch.vocabulary.draft_flops import DraftFlops
from tts_orch.vocabulary.size_objective import SizeObjective
from tts_orch.vocabulary.size_plot import draw_sizes

__all__ = ["VocabularyReport"]


@dataclass(frozen=True, slots=True)
class VocabularyReport:
    """The sizes that were looked at.

    Attributes:
        objective: worth by size.
        held_out: `[V + 1]` coverage of texts that were not counted; None without any.
        flops: of the head.
        chosen: sizes by who chose them: `scan`, `TPE`, and `measured` where speeds are.
        speeds: what was measured, by size.
    """

    objective: SizeObjective
    held_out: NDArray[np.float64] | None
    flops: DraftFlops
    chosen: Mapping[str, int]
    speeds: Sequence[SizeSpeed]

    @property
    def size(self) -> int:
        """The size that counts: the fastest, or without speeds the best one by utility."""
        return self.chosen.get("measured", self.chosen["scan"])

    @property
    def gap(self) -> float:
        """How much of the best utility TPE misses."""
        return 1 - self.objective.utility(self.chosen["TPE"]) / self.objective.utility(self.chosen["scan"])

    def worth(self, size: int) -> dict[str, Any]:
        """Return what a size is worth, by name."""
        shares = {
            "coverage": self.objective.coverage[size],
            **({} if self.held_out is None else {"held_out_coverage": self.held_out[size]}),
            "saving": self.objective.saving[size],
            "utility": self.objective.utility(size),
        }
        return {"size": size, **{name: round(float(share), 6) for name, share in shares.items()}}

    def table(self) -> Table:
        """Return the sizes that were chosen, with their worth."""
        whole = len(self.objective.coverage) - 1
        table = Table("chosen by", *self.worth(whole))
        for name, size in {**self.chosen, "all tokens": whole}.items():
            _, *shares = self.worth(size).values()
            table.add_row(name, str(size), *(f"{share:.4f}" for share in shares))
        return table

    def speed_table(self) -> Table:
        """Return what was measured, and which sizes are as fast as the chosen one as far as this device tells."""
        verify = f"{1e3 * self.speeds[0].verify_seconds:.1f}"
        table = Table("size", "tau", "ms a drafted level", "tokens/s", "of half of the steps")
        table.title = f"Measured on this device, held-out texts; {verify} ms a verify pass"
        for one in self.speeds:
            level, middle = f"{1e3 * one.level_seconds:.2f}", f"{one.low:.1f} - {one.high:.1f}"
            table.add_row(str(one.size), f"{one.tau:.3f}", level, f"{one.tokens_per_second:.1f}", middle)
        table.caption = (
            f"as fast as {self.size}, as far as this device tells: {', '.join(map(str, self._equals)) or 'none'}"
        )
        return table

    @property
    def _equals(self) -> list[int]:
        """Sizes that another measurement may find faster: half of their steps are in part as fast as half of the fastest's."""
        fastest = max(self.speeds, key=lambda one: one.tokens_per_second)
        return [one.size for one in self.speeds if one is not fastest and one.high >= fastest.low]

    def write(self, folder: Path, provenance: Mapping[str, Any]) -> None:
        """Write report.json and vocabulary.png."""
        report = {
            **provenance,
            "chosen": {name: self.worth(size) for name, size in self.chosen.items()},
            "utility_gap_of_tpe": round(self.gap, 6),
            "flops": {**self.flops._asdict(), "total": self.flops.total(len(self.objective.coverage) - 1)},
            "measured": [one._asdict() for one in self.speeds],
        }
        write_atomically(folder / "report.json", json.dumps(report, indent=2) + "\n")
        speeds = {one.size: one.tokens_per_second for one in self.speeds}
        draw_sizes(self.objective, self.held_out, self.chosen, speeds, folder / "vocabulary.png")
