"""Benchmarks of several parts: the options that they share, and running the parts that were asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import TypeAlias

from noise import machine

from tts_orch.engine.threads import set_threads
from tts_orch.errors import OrchestratorError

__all__ = ["Parts", "new_parser", "run_parts"]

Parts: TypeAlias = Mapping[str, Callable[[argparse.Namespace], None]]
"""What a benchmark can do, by name."""


def new_parser(description: str | None, parts: Parts, out: Path, data: str) -> argparse.ArgumentParser:
    """Return the options of a benchmark of draft heads.

    Args:
        description: the help.
        parts: what it can do.
        out: folder of results if none is given.
        data: what the folder of data holds.
    """
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("parts", nargs="+", choices=parts, help="what to do")
    result.add_argument("--data", type=Path, help=f"folder of {data}")
    result.add_argument(
        "--heads", type=Path, default=Path("runs/drafters"), help="folder of LOSS/NAME folders of heads"
    )
    result.add_argument("--out", type=Path, default=out, help="folder of recordings and results")
    result.add_argument("--target", default="smollm2", help="the target model (smollm2)")
    result.add_argument("--dtype", default="float32", help="type of target and heads (float32)")
    result.add_argument("--threads", type=int, help="of kernels and torch; all cores if not given")
    return result


def run_parts(name: str, parts: Parts, arguments: argparse.Namespace) -> None:
    """Measure and print what was asked for; a mistake ends it with one line that begins with the benchmark's name."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.threads is not None:
        set_threads(arguments.threads)
    print(f"{machine()}, {date.today()}", flush=True)
    try:
        for part in arguments.parts:
            parts[part](arguments)
    except OrchestratorError as error:
        sys.exit(f"{name}: {error}")
