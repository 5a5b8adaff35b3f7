"""Domain drafters against each other: alone, averaged, routed, merged, and beside STAND.

    make drafters DATA=data                                                  # trains the heads, for hours
    python benchmarks/taps.py acceptance --data data --heads runs/drafters   # acceptance length by replay
    python benchmarks/taps.py speed --data data --heads runs/drafters        # tokens a second of real decoding
    python benchmarks/taps.py tables                                         # all of it so far, as Markdown
    python benchmarks/taps.py plots --heads runs/drafters                    # how the heads learned

The target's trajectories are recorded once; what a drafter would have had accepted follows from them exactly. What is
in --out already, with the same heads and settings, is not measured again; tables never mix heads or settings.

Source of the comparison: arXiv 2603.27027.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from parts import Parts, new_parser, run_parts
from taps_parts.acceptance import acceptance
from taps_parts.plots import plots
from taps_parts.recordings import WORKLOADS
from taps_parts.rows import ROWS
from taps_parts.speed import WAYS, speed
from taps_parts.tables import tables

_PARTS: Final[Parts] = {
    "acceptance": acceptance,
    "speed": speed,
    "tables": tables,
    "plots": plots,
}


def main() -> None:
    """Measure and print what was asked for."""
    run_parts("taps", _PARTS, parser().parse_args())


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    result = new_parser(__doc__, _PARTS, Path("runs/taps"), "problem files")
    result.add_argument("--jobs", type=int, default=1, help="processes that replay (1)")
    result.add_argument("--losses", nargs="+", default=["eagle2", "hass"], help="kinds of heads (eagle2 hass)")
    names = [row.name for row in ROWS]
    result.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help="rows to measure (all)")
    result.add_argument("--workloads", nargs="+", default=WORKLOADS, help=f"problem files ({' '.join(WORKLOADS)})")
    result.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0], help="sampling temperatures (0 1)")
    result.add_argument("--problems", type=int, default=20, help="problems of a workload (20)")
    result.add_argument("--tokens", type=int, default=128, help="most tokens of a trajectory (128)")
    result.add_argument("--nodes", type=int, default=59, help="draft nodes of a verify step (59)")
    result.add_argument("--depth", type=int, default=5, help="depth of draft trees (5)")
    result.add_argument("--width", type=int, default=10, help="beams of draft trees (10)")
    timed = result.add_argument_group("speed")
    timed.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS], metavar="WAY", help="what to compare (all)")
    timed.add_argument("--batch", type=int, default=16, help="trajectories at a time (16)")
    timed.add_argument("--samples", type=int, default=16, help="trajectories of a problem (16)")
    timed.add_argument("--speed-problems", type=int, default=4, help="problems of a workload (4)")
    timed.add_argument("--speed-tokens", type=int, default=64, help="most tokens of a trajectory (64)")
    timed.add_argument("--speed-temperature", type=float, default=0.7, help="sampling temperature (0.7)")
    timed.add_argument("--speed-width", type=int, default=4, help="beams of draft trees (4)")
    return result


if __name__ == "__main__":
    main()
