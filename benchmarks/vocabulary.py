"""Draft vocabularies against each other: how large they are chosen, what heads lose with them, and what they gain in speed.

    python benchmarks/vocabulary.py texts choices --data data               # prompts of the narrow domains, and sizes
    python benchmarks/vocabulary.py coverage --data data                    # of what the target says
    sh benchmarks/vocabulary_heads.sh data runs/drafters runs/vocabulary    # trains the heads, for hours
    python benchmarks/vocabulary.py acceptance --data data --heads runs/drafters   # acceptance length by replay
    python benchmarks/vocabulary.py levels sizes speed --data data --heads runs/drafters   # seconds, on a quiet machine
    python benchmarks/vocabulary.py tables plots                            # all of it so far

The target's trajectories are recorded once. What is in --out already, with the same heads, vocabularies and settings, is not
measured again.

Source of the comparison: arXiv 2603.05210.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from parts import Parts, new_parser, run_parts
from vocabulary_parts.acceptance import acceptance
from vocabulary_parts.choices import choices
from vocabulary_parts.coverage import coverage
from vocabulary_parts.levels import levels
from vocabulary_parts.plots import plots
from vocabulary_parts.recordings import WORKLOADS
from vocabulary_parts.sizes import sizes
from vocabulary_parts.speed import TREES, speed
from vocabulary_parts.tables import tables
from vocabulary_parts.texts import texts
from vocabulary_parts.ways import VOCABULARIES

_PARTS: Final[Parts] = {
    "texts": texts,
    "choices": choices,
    "coverage": coverage,
    "acceptance": acceptance,
    "levels": levels,
    "sizes": sizes,
    "speed": speed,
    "tables": tables,
    "plots": plots,
}


def main() -> None:
    """Measure and print what was asked for."""
    run_parts("vocabulary", _PARTS, parser().parse_args())


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    result = new_parser(__doc__, _PARTS, Path("runs/vocabulary"), "public files")
    result.add_argument("--losses", nargs="+", default=["eagle2", "eagle3"], help="kinds of heads (eagle2 eagle3)")
    result.add_argument(
        "--vocabularies", nargs="+", choices=VOCABULARIES, default=VOCABULARIES, help="what heads may propose (all)"
    )
    result.add_argument("--workloads", nargs="+", default=WORKLOADS, help=f"what is drafted ({' '.join(WORKLOADS)})")
    result.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0], help="sampling temperatures (0 1)")
    result.add_argument("--problems", type=int, default=16, help="problems of a workload (16)")
    result.add_argument("--tokens", type=int, default=96, help="most tokens of a trajectory (96)")
    result.add_argument("--alpha", type=float, default=0.5, help="weight of coverage in the utility (0.5)")
    result.add_argument("--min-coverage", type=float, default=0.9, help="least coverage of the corpus (0.9)")
    trees = result.add_argument_group("acceptance")
    trees.add_argument("--nodes", type=int, default=59, help="draft nodes of a verify step (59)")
    trees.add_argument("--depth", type=int, default=5, help="depth of draft trees (5)")
    trees.add_argument("--width", type=int, default=10, help="beams of draft trees (10)")
    timed = result.add_argument_group("speed")
    timed.add_argument("--batches", type=int, nargs="+", default=[1, 16], help="trajectories at a time (1 16)")
    timed.add_argument("--trees", nargs="+", choices=TREES, default=[*TREES], help="of draft nodes (all)")
    timed.add_argument("--speed-workloads", nargs="+", help="what every head decodes; its own domain if not given")
    timed.add_argument("--speed-problems", type=int, default=8, help="problems of a workload (8)")
    timed.add_argument("--speed-tokens", type=int, default=64, help="most tokens of a trajectory (64)")
    timed.add_argument("--speed-temperature", type=float, default=0.0, help="sampling temperature (0)")
    return result


if __name__ == "__main__":
    main()
