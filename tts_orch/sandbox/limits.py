"""How much a program that nobody has read may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one program; where one is passed, the program is killed or its call fails.

    Attributes:
        wall_s: seconds by the clock, more than the CPU seconds so that a busy machine does not change what comes out.
        cpu_s: CPU seconds of each process.
        memory_bytes: address space of each process.
        processes: processes and threads that it may have at once, up to three of them being its keepers.
        file_bytes: size of each file that it writes, its output among them.
        folder_bytes: size of its working folder, where the system lets it have a file system of its own.
        open_files: open files of each process.
    """

    wall_s: float = 30.0
    cpu_s: int = 10
    memory_bytes: int = 1 << 30
    processes: int = 16
    file_bytes: int = 4 << 20
    folder_bytes: int = 64 << 20
    open_files: int = 64


DEFAULT_LIMITS: Final = Limits()
