"""Plant known faults one by one and see that the tests catch each.

    python tests/mutation_check.py            # all
    python tests/mutation_check.py noise kv   # those whose name contains a word

A fault is a small edit of one file in a copy of the tree; the tests named with it must then fail. The faults are the ones
that silently break losslessness in practice. Exit code 1 if a fault survives or no longer applies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Fault:
    """An edit that breaks exactness.

    Attributes:
        name: what is wrong with it.
        file: edited file, relative to the root.
        old: text that occurs exactly once in it.
        new: what it becomes.
        tests: what must fail, as pytest arguments.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str


FAULTS: tuple[Fault, ...] = ()


def plant(fault: Fault, tree: Path) -> str:
    """Edit the copy and return the original text of the file."""
    path = tree / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.file}: the text of fault {fault.name!r} occurs {text.count(fault.old)} times, not once")
    path.write_text(text.replace(fault.old, fault.new))
    return text


def is_caught(fault: Fault, tree: Path) -> bool:
    """Run the fault's tests in the copy; compiled kernels are built anew, since their cache does not know callees."""
    with tempfile.TemporaryDirectory() as kernels:
        environment = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": kernels}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *fault.tests.split()]
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise SystemExit(f"{fault.name}: the tests could not run\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return run.returncode == 1


def main() -> int:
    """Check the faults whose names contain one of the words given."""
    words = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", "*.egg-info", ".*_cache")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=ignored)
        for number, fault in enumerate(chosen, start=1):
            started = time.monotonic()
            original = plant(fault, tree)
            caught = is_caught(fault, tree)
            (tree / fault.file).write_text(original)
            verdict = "caught" if caught else "SURVIVED"
            print(f"{number}/{len(chosen)} {verdict:8} {time.monotonic() - started:5.0f} s  {fault.name}", flush=True)
            survivors += [] if caught else [fault.name]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
