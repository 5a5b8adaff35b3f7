"""Run Python programs that nobody has read: in killable processes, within limits, shut in as far as the system allows."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tts_orch.sandbox.limits import DEFAULT_LIMITS, Limits

__all__ = ["Outcome", "run_python"]

_LAUNCHER: Final = Path(__file__).with_name("launch.py")
_THREADS: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program.

    Attributes:
        exit_code: as a shell gives it, 128 and the signal's number for a killed process; None where it took too long.
        output: what it wrote to its standard output, at most as much as a file may hold.
        errors: what it wrote to its standard error, in the same way.
    """

    exit_code: int | None
    output: str
    errors: str

    @property
    def took_too_long(self) -> bool:
        """Whether it was killed at its time limit."""
        return self.exit_code is None

    @property
    def last_error(self) -> str:
        """The last line of its standard error, empty where there is none."""
        return self.errors.strip().rpartition("\n")[2]


def run_python(program: str, standard_input: str = "", limits: Limits = DEFAULT_LIMITS) -> Outcome:
    """Run a program to its end, or to that of its time; all its processes are gone when this returns.

    It works in an empty folder of its own, with an environment that holds nothing of this process's. What else shuts it in
    depends on the system; see `isolation`.

    Args:
        program: source text.
        standard_input: what it reads.
        limits: what it may use.
    """
    with _folder() as folder, (folder / "output").open("xb") as output, (folder / "errors").open("xb") as errors:
        (folder / "program.py").write_text(program, encoding="utf-8", errors="surrogatepass")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LAUNCHER), json.dumps(_task(folder, limits))],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=_environment(folder / "work"),
            start_new_session=True,
        )
        exit_code = _wait(process, standard_input, limits.wall_s)
        texts = ((folder / name).read_text(encoding="utf-8", errors="replace") for name in ("output", "errors"))
        return Outcome(exit_code, *texts)


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder that anybody may look into, and within it one that anybody may write to."""
    folder = Path(tempfile.mkdtemp(prefix="tts-orch-"))
    try:
        folder.chmod(0o755)
        (folder / "work").mkdir()
        (folder / "work").chmod(0o777)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _task(folder: Path, limits: Limits) -> dict[str, object]:
    """Return what the launcher is told."""
    resources = {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_CPU": limits.cpu_s,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CORE": 0,
    }
    return {
        "folder": str(folder / "work"),
        "program": str(folder / "program.py"),
        "pythons": _pythons(),
        "private": _private(),
        "wall_s": limits.wall_s,
        "folder_bytes": limits.folder_bytes,
        "limits": resources,
    }


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # the same verdicts in every run
        **_THREADS,
    }


@functools.cache
def _pythons() -> list[str]:
    """Return this Python, and the system's for users who cannot reach this one."""
    return [sys.executable, *filter(None, [shutil.which("python3", path=os.defpath)])]


@functools.cache
def _private() -> dict[str, list[str]]:
    """Return the folders of root's that nobody else may enter but that this Python is in, with where it is."""
    places: dict[str, list[str]] = {}
    for prefix in {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()} if os.geteuid() == 0 else ():
        closed = (folder for folder in reversed(prefix.parents) if not folder.stat().st_mode & stat.S_IXOTH)
        folder = next(closed, None)
        if folder is not None:
            places.setdefault(str(folder), []).append(str(prefix))
    return places


def _wait(process: subprocess.Popen[bytes], standard_input: str, wall_s: float) -> int | None:
    """Return the exit code, None where the time was over; then nothing of its process group is left."""
    try:
        process.communicate(standard_input.encode(errors="surrogatepass"), timeout=wall_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
