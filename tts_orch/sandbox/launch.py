"""Shuts itself in, then becomes the program that it was started for.

Started as a process of its own, from its file and with the standard library alone, so that nothing of the package is there
to be reached. What it does, each part as far as the system allows:

- root becomes a user who owns nothing;
- new namespaces: no network, no sight of other processes, mounts of its own. The first process in them ends when the program
  does or when its keeper outside dies, and the kernel then ends all others;
- every file system becomes read-only; the working folder becomes a small one in memory;
- resource limits, no new privileges, and an alarm in case nobody outside is left to end it.

Usage: launch.py JSON, with `program` (a file), `pythons` (the first that can run it does), `folder` to work in, `folder_bytes`,
`wall_s`, `limits` (resource name to value) and `private` (see `open_ways`).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NEW_NAMESPACES = NEW_MOUNTS | NEW_IPC | NEW_PROCESSES | NEW_NETWORK
DIE_WITH_PARENT, DROP_CAPABILITY, NO_NEW_PRIVILEGES, N_CAPABILITIES = 1, 24, 38, 64  # prctl
NO_SUID, BIND, RECURSIVE, PRIVATE = 0x2, 0x1000, 0x4000, 0x40000  # mount
MOUNT_SETATTR, CURRENT_FOLDER, WHOLE_TREE, READ_ONLY = 442, -100, 0x8000, 0x1
NOBODY, OWNERLESS_IDS = 65534, 1_000_000_000

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Shut the process in and run the program; never returns."""
    task = json.loads(sys.argv[1])
    signal.alarm(math.ceil(task["wall_s"]) + 2)
    was_root = os.geteuid() == 0
    user = OWNERLESS_IDS + os.getpid()  # nobody else's, so that its processes can be counted
    is_isolated = sys.platform == "linux" and enter_namespaces(was_root)

    def become_program() -> None:
        if is_isolated:
            libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None)
            open_ways(task["private"])
            shut_files(task["folder"], task["folder_bytes"])
        if sys.platform == "linux":
            libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            if was_root:
                drop_root(user)
        os.chdir(task["folder"])
        limit(task["limits"], has_own_count=is_isolated or was_root)
        become(task["pythons"], task["program"])

    if is_isolated:
        run_as_init(become_program)
    become_program()


def enter_namespaces(is_root: bool) -> bool:
    """Leave the system's network, processes and mounts; return whether that was allowed."""
    if is_root:
        return not libc.unshare(NEW_NAMESPACES)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEW_NAMESPACES | NEW_USER):
        return False
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def open_ways(private: dict[str, list[str]]) -> None:
    """Let other users reach some folders in one that they may not enter, and hide the rest of it from everybody.

    This is how a Python in root's home runs for another user.
    """
    for folder, shown in private.items():
        descriptors = [os.open(place, os.O_RDONLY) for place in shown]
        libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", NO_SUID, b"size=1m,mode=755")
        for place, descriptor in zip(shown, descriptors, strict=True):
            os.makedirs(place, exist_ok=True)
            libc.mount(f"/proc/self/fd/{descriptor}".encode(), os.fsencode(place), None, BIND | RECURSIVE, None)
            os.close(descriptor)


def shut_files(folder: str, folder_bytes: int) -> None:
    """Make all file systems read-only, give the program a small one in memory to work in, and show it its own processes."""
    libc.mount(b"proc", b"/proc", b"proc", NO_SUID, None)
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SUID)
    libc.syscall(MOUNT_SETATTR, CURRENT_FOLDER, b"/", WHOLE_TREE, ctypes.byref(attributes), ctypes.sizeof(attributes))
    libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", NO_SUID, f"size={folder_bytes},mode=777".encode())


def drop_root(user: int) -> None:
    """Become a user who owns nothing, or `nobody`; where neither can be, as in a container of a user's, at least lose all power."""
    for capability in range(N_CAPABILITIES):
        libc.prctl(DROP_CAPABILITY, capability, 0, 0, 0)  # from what the program will have
    for number in (user, NOBODY):
        with suppress(OSError):
            os.setgroups([])
            os.setresgid(number, number, number)
            os.setresuid(number, number, number)
            return


def limit(limits: dict[str, int], has_own_count: bool) -> None:
    """Set the resource limits; processes are counted by user, so where it is shared the others' are added."""
    for name, value in limits.items():
        already = 0 if has_own_count or name != "RLIMIT_NPROC" else tasks_of(os.getuid())
        resource.setrlimit(getattr(resource, name), (value + already, value + already))


def tasks_of(user: int) -> int:
    """Return how many processes and threads a user has."""
    n_tasks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            n_tasks += len(os.listdir(process / "task")) if process.stat().st_uid == user else 0
    return n_tasks


def run_as_init(become_program: Callable[[], None]) -> None:
    """Start the program as the second process of the new namespace, wait for its end and end with its status."""
    init = os.fork()
    if init:
        os._exit(exit_code(os.waitpid(init, 0)[1]))
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    program = os.fork()
    if not program:
        become_program()
    while True:  # orphans come here too
        ended, status = os.wait()
        if ended == program:
            os._exit(exit_code(status))


def exit_code(status: int) -> int:
    """Return the exit code of a wait status as a shell gives it: 128 and the signal's number for a killed process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def become(pythons: list[str], program: str) -> None:
    """Run the program, with the first Python that this user may run."""
    for python in pythons:
        with suppress(OSError):
            os.execv(python, [python, "-s", "-B", program])
    sys.exit(f"user {os.geteuid()} may not run {' or '.join(pythons)}")


if __name__ == "__main__":
    main()
