"""How far a run is: a live bar on a terminal, elsewhere lines with the time of day, seldomer the longer the run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tts_orch.records import Candidate
from tts_orch.results import ProblemResult
from tts_orch.summary import DecodingTime

__all__ = ["RunProgress", "waiting"]

_FIRST_LINES_EVERY_S: Final = 5.0
_LATER_LINES_EVERY_S: Final = 60.0
_SHARE_OF_TIME: Final = 0.05  # between two lines: a log of hours stays readable


@contextmanager
def waiting(console: Console, what: str) -> Iterator[None]:
    """Say what takes long before the first candidates: in passing on a terminal, as a line elsewhere."""
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        console.print(what, highlight=False, soft_wrap=True)
        yield


class RunProgress:
    """Counts what a run has done, and shows it while `shown` is open.

    Args:
        n_problems: problems of the run.
        verification: named beside the acceptance length that it brings.
        earlier: results from before that stand.
    """

    def __init__(self, n_problems: int, verification: str, earlier: Sequence[ProblemResult] = ()) -> None:
        self._n_problems = n_problems
        self._verification = verification
        self._n_done = len(earlier)
        self._verdicts = [result.correct for result in earlier if result.correct is not None]
        self._n_candidates = self._n_tokens = self._verify_steps = self._decoded_tokens = 0
        self._started = time.perf_counter()
        self._ended: float | None = None
        self._show: Callable[[], None] = lambda: None

    def on_candidate(self, candidate: Candidate) -> None:
        """Count a candidate that ended, from the journal or just decoded."""
        self._n_candidates += 1
        self._n_tokens += candidate.n_new
        self._verify_steps += candidate.verify_steps
        self._show()

    def on_tokens(self, n_tokens: int) -> None:
        """Count tokens that were decoded now."""
        self._decoded_tokens += n_tokens
        self._show()

    def on_result(self, result: ProblemResult) -> None:
        """Count a problem that is done."""
        self._n_done += 1
        if result.correct is not None:
            self._verdicts.append(result.correct)
        self._show()

    @property
    def time(self) -> DecodingTime:
        """What was decoded while `shown` was open, and in how much time."""
        return DecodingTime((self._ended or time.perf_counter()) - self._started, self._decoded_tokens)

    def __str__(self) -> str:
        parts = [f"{self._n_candidates} candidates", f"{self.time.tokens_per_s:.0f} tokens/s"]
        if self._verify_steps:
            parts.append(f"tau {self._n_tokens / self._verify_steps:.2f} ({self._verification})")
        if self._verdicts:
            parts.append(f"accuracy {100 * sum(self._verdicts) / len(self._verdicts):.1f} %")
        return "  ".join(parts)

    @contextmanager
    def shown(self, console: Console) -> Iterator[None]:
        """Start the clock and show the counts until the end of the block."""
        self._started = time.perf_counter()
        try:
            with self._bar(console) if console.is_terminal else self._lines(console) as self._show:
                yield
        finally:
            self._show = lambda: None
            self._ended = time.perf_counter()

    @contextmanager
    def _bar(self, console: Console) -> Iterator[Callable[[], None]]:
        columns = (BarColumn(10), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(str(self), total=self._n_problems, completed=self._n_done)
            yield lambda: bar.update(task, description=str(self), completed=self._n_done)

    @contextmanager
    def _lines(self, console: Console) -> Iterator[Callable[[], None]]:
        written, last = time.perf_counter(), ""

        def write() -> None:
            nonlocal written, last
            line = f"{self._n_done}/{self._n_problems} problems  {self}"
            if line != last:
                console.print(f"{time.strftime('%H:%M:%S')}  {line}", highlight=False, soft_wrap=True)
            written, last = time.perf_counter(), line

        def write_seldom() -> None:
            if time.perf_counter() - written >= _line_every_s(self.time.wall_time_s):
                write()

        yield write_seldom
        write()


def _line_every_s(seconds: float) -> float:
    """Return how long a log waits for the next line when a run has gone on for so long."""
    return min(max(_FIRST_LINES_EVERY_S, _SHARE_OF_TIME * seconds), _LATER_LINES_EVERY_S)
