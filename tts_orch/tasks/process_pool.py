"""A few worker processes that can be killed: for calls that may hang, grow or crash.

The workers are plain interpreters started with `subprocess`, not with `multiprocessing`: nothing is forked from a process
with threads, and the caller's main script is not imported again, so it works in notebooks, threads and Ray actors. A
worker that is busy too long dies by its own timer even if its parent is gone; an idle one ends when its parent does.
POSIX only.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, ParamSpec, TypeVar, cast

__all__ = ["CallLostError", "ProcessPool"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_START_LIMIT_S = 60.0


class CallLostError(Exception):
    """The call gave no result: it took too long, needed too much memory, raised, or its worker died."""


class ProcessPool(Generic[Arguments, Result]):
    """Runs one function in killable processes, started when first needed; safe to use from many threads."""

    def __init__(
        self,
        function: Callable[Arguments, Result],
        *,
        workers: int = 2,
        time_limit_s: float = 5.0,
        memory_limit_bytes: int = 4 << 30,
    ) -> None:
        """Prepare a pool; no process is started yet.

        Args:
            function: a module-level function of an importable module; arguments and result must pickle.
            workers: processes at most.
            time_limit_s: CPU seconds a call may take; ten times as much by the clock, so that a busy machine does not
                change the outcome.
            memory_limit_bytes: address space of a worker.
        """
        self._function = function
        self._time_limit_s = time_limit_s
        self._memory_limit_bytes = memory_limit_bytes
        self._places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._places.put(None)

    def call(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Run the function in a worker and wait for its result.

        Raises:
            CallLostError: there is no result; the worker was killed and the next call gets a fresh one.
        """
        worker = self._places.get()
        try:
            worker = worker or _Worker(self._function, self._time_limit_s, self._memory_limit_bytes)
            return cast(Result, worker.call(args, kwargs))
        except BaseException as error:
            if worker is not None:
                worker.kill()
                worker = None
            if isinstance(error, EOFError | OSError):
                raise CallLostError("the worker died: too much time or memory, or a crash") from None
            raise
        finally:
            self._places.put(worker)

    def close(self) -> None:
        """Kill all idle workers; a later call starts fresh ones."""
        for _ in range(self._places.qsize()):
            worker = self._places.get()
            if worker is not None:
                worker.kill()
            self._places.put(None)


class _Worker:
    """The parent's side of one process."""

    def __init__(self, function: Callable[..., object], time_limit_s: float, memory_limit_bytes: int) -> None:
        self._deadline_s = 10 * time_limit_s
        self._has_started = False
        self._connection, theirs = multiprocessing.Pipe()
        search_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt at the terminal is the parent's business
                env={**os.environ, "PYTHONPATH": search_path},
            )
        self._connection.send((function, time_limit_s, memory_limit_bytes))

    def call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if not self._has_started:
            self._has_started = self._receive(_START_LIMIT_S)[0]
        self._connection.send((args, kwargs))
        succeeded, result = self._receive(self._deadline_s)
        if not succeeded:
            raise CallLostError(str(result))
        return result

    def _receive(self, limit_s: float) -> tuple[bool, object]:
        if not self._connection.poll(limit_s):
            raise CallLostError(f"no answer within {limit_s:g} s")
        return cast(tuple[bool, object], self._connection.recv())

    def kill(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _serve(connection: Connection) -> None:
    """Answer calls until the parent closes its end."""
    function, time_limit_s, memory_limit_bytes = connection.recv()
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process even inside C code
    connection.send((True, None))
    while True:
        try:
            args, kwargs = connection.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, time_limit_s)
        try:
            answer = (True, function(*args, **kwargs))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}")
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(answer)


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
