"""The shared draft statistics: rates, sizes, what a decode step notices of them, what sharing gives, what failures cost.

    python benchmarks/store.py                                 # the list of parts
    python benchmarks/store.py wire append merge               # some of them
    python benchmarks/store.py all --out store.md              # everything, for about half an hour

A real redis-server is started where a part needs one, on a free loopback port, and stopped by its process id. Every part
prints a Markdown section with machine and date. On a machine that others use, only what is counted in processor time and
ratios of interleaved runs mean something; the A/A rows say how much.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Final

from noise import machine
from store_parts.interference import interference
from store_parts.kills import kill
from store_parts.rates import append, merge, wire
from store_parts.sharing import latency, tau
from store_parts.snapshots import snapshot
from store_parts.steps import step, tokens

from tts_orch.bench.markdown import section
from tts_orch.engine.threads import set_threads

_PARTS: Final[dict[str, Callable[[argparse.Namespace], str]]] = {
    "wire": wire,
    "append": append,
    "merge": merge,
    "snapshot": snapshot,
    "interference": interference,
    "latency": latency,
    "tau": tau,
    "step": step,
    "tokens": tokens,
    "kill": kill,
}

_PROBLEMS: Final = Path(__file__).parents[1] / "examples" / "problems" / "word_problems.jsonl"


def main() -> None:
    """Measure and print what was asked for."""
    arguments = parser().parse_args()
    if not arguments.parts:
        parser().print_help()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers are stopped then too
    names = list(_PARTS) if "all" in arguments.parts else arguments.parts
    set_threads(arguments.threads)
    for name in names:
        text = section(f"store: {name}", f"{title(name)} {machine()}, {date.today()}.\n", _PARTS[name](arguments))
        print(text, flush=True)
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(text + "\n")


def part(name: str) -> str:
    """Return the name of a part; another word is a mistake of the user."""
    if name not in (*_PARTS, "all"):
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(_PARTS)}, all")
    return name


def title(name: str) -> str:
    """Return what a part measures, in a sentence."""
    return (_PARTS[name].__doc__ or "").partition("\n")[0]


def parser() -> argparse.ArgumentParser:
    """Return the options; parts use what concerns them."""
    parts = "\n".join(f"  {name:10} {title(name)}" for name in _PARTS)
    result = argparse.ArgumentParser(
        description=__doc__, epilog=f"parts:\n{parts}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("parts", nargs="*", default=[], type=part, metavar="part", help="what to measure, or all")
    result.add_argument("--out", type=Path, help="file that the sections are added to")
    result.add_argument("--server", default="redis-server", help="the server program, or valkey-server (redis-server)")
    result.add_argument("--threads", type=int, default=1, help="of kernels and torch (1)")
    result.add_argument("--repeats", type=int, default=3, help="runs of parts that have no pairs (3)")
    result.add_argument(
        "--seconds", type=float, default=5.0, help="append, interference, latency: how long each case takes (5)"
    )
    result.add_argument("--writers", type=int, default=2, help="append: processes that write (2)")
    result.add_argument("--deltas", type=int, default=2_000_000, help="merge: deltas in the log (2 000 000)")
    result.add_argument("--entries", type=int, default=1_000_000, help="snapshot: contexts in it (1 000 000)")
    result.add_argument("--kill-deltas", type=int, default=100_000, help="kill: deltas of each worker (100 000)")
    result.add_argument("--kills", type=int, default=10, help="kill: of workers, of the compactor and of Redis (10)")
    result.add_argument("--seed", type=int, default=0, help="kill: of the moments (0)")
    decoding = result.add_argument_group("parts that decode: tau, step, tokens")
    decoding.add_argument("--target", default="smollm2", help="the target model (smollm2)")
    decoding.add_argument("--problems", type=Path, default=_PROBLEMS, help="problem file (the demo's word problems)")
    decoding.add_argument("--limit", type=int, default=3, help="take the first so many problems (3)")
    decoding.add_argument("--samples", type=int, default=16, help="trajectories of a problem (16)")
    decoding.add_argument("--tokens", type=int, default=96, help="most tokens of a trajectory (96)")
    decoding.add_argument("--pairs", type=int, default=10, help="step: rounds in which every store has its turn (10)")
    decoding.add_argument(
        "--feed", type=float, nargs="+", default=[6_000, 48_000], help="step: deltas a second of others (6 000 48 000)"
    )
    decoding.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="tau: workers (1 2 4)")
    decoding.add_argument("--nodes", type=int, default=32, help="tau: nodes of every draft (32)")
    return result


if __name__ == "__main__":
    main()
