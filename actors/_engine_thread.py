"""The thread that steps a decoder; everybody else talks to it through an inbox of orders."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Final, Protocol, TypeVar

import numpy as np

from tts_orch.actors._chunk_buffer import ChunkBuffer
from tts_orch.errors import UserError, WorkerLostError
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Chunk, DecodeRequest, FinishReason
from tts_orch.store.replica import ReplicaStatistics

__all__ = ["EngineThread", "SteppedDecoder", "SyncedReplica"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_CHUNK_INTERVAL_S: Final = 0.25


class SteppedDecoder(Protocol):
    """What the thread needs of a decoder."""

    @property
    def is_idle(self) -> bool:
        """Whether a step would do nothing."""
        ...

    def submit(self, request: DecodeRequest) -> None:
        """Queue a request; raises `UserError` if it cannot be served."""
        ...

    def cancel(self, candidate_id: str) -> None:
        """End a request at the next step; unknown ids are ignored."""
        ...

    def step(self) -> list[Chunk]:
        """Advance everybody by one verify step."""
        ...

    def close_scope(self, scope: str) -> None:
        """Forget the draft statistics of a scope."""
        ...

    def statistics(self) -> dict[str, float]:
        """Return counters."""
        ...

    def change_drafter(self, change: Callable[[Drafter], Drafter]) -> None:
        """Go on with what a function makes of the drafter; raises `ConfigError` where that does not suit."""
        ...

    def routing_report(self) -> RoutingReport:
        """Return what each of several drafters did since the last call."""
        ...


class SyncedReplica(Protocol):
    """What the thread needs of a replica of the draft statistics."""

    def apply(self) -> None:
        """Take in what other writers have learned; called between steps."""
        ...

    def statistics(self) -> ReplicaStatistics:
        """Return the counters; safe from any thread."""
        ...

    def close(self) -> None:
        """Send what is left and stop."""
        ...


class EngineThread:
    """Owns a decoder and its replica; chunks leave through `buffer`."""

    def __init__(self, decoder: SteppedDecoder, replica: SyncedReplica | None) -> None:
        self.buffer = ChunkBuffer(_CHUNK_INTERVAL_S)
        self._decoder = decoder
        self._replica = replica
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_stopping = False
        self._step_began: float | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def step_age_s(self) -> float:
        """Seconds since the running verify step began, 0 between steps."""
        began = self._step_began
        return 0.0 if began is None else time.monotonic() - began

    def submit(self, request: DecodeRequest) -> None:
        """Hand a request to the decoder; if it refuses, the refusal leaves as the candidate's only chunk."""
        self._inbox.put(lambda: self._submit(request))

    def cancel(self, candidate_id: str) -> None:
        """Cancel a request that was submitted before."""
        self._inbox.put(lambda: self._decoder.cancel(candidate_id))

    def store_statistics(self) -> dict[str, float]:
        """Return the counters of the exchange with the store, none without a store."""
        if self._replica is None:
            return {}
        return {f"store_{name}": value for name, value in asdict(self._replica.statistics()).items()}

    def ask(self, action: Callable[[SteppedDecoder], Result]) -> Future[Result]:
        """Run an action on the decoder between two steps."""
        future: Future[Result] = Future()

        def order() -> None:
            try:
                future.set_result(action(self._decoder))
            except Exception as error:
                future.set_exception(error)

        self._inbox.put(order)
        return future

    def stop(self, timeout_s: float) -> None:
        """End the thread after the running step, and close the replica."""
        self._inbox.put(self._note_stop)
        self._thread.join(timeout_s)

    def _note_stop(self) -> None:
        self._is_stopping = True

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._take_orders()
                self._step()
        except Exception as error:
            logger.exception("the engine failed")
            self.buffer.fail(WorkerLostError(f"the engine failed: {type(error).__name__}: {error}"))
        finally:
            if self._replica is not None:
                self._replica.close()

    def _take_orders(self) -> None:
        if self._decoder.is_idle:
            self._inbox.get()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _step(self) -> None:
        if self._replica is not None:
            self._replica.apply()
        if not self._decoder.is_idle:
            self._step_began = time.monotonic()
            chunks = self._decoder.step()
            self._step_began = None
            self.buffer.add(chunks, time.monotonic())

    def _submit(self, request: DecodeRequest) -> None:
        try:
            self._decoder.submit(request)
        except UserError as error:
            self.buffer.add([_refusal(request, str(error))], time.monotonic())


def _refusal(request: DecodeRequest, message: str) -> Chunk:
    none = np.zeros(0, np.float32)
    return Chunk(
        request.candidate_id,
        len(request.token_ids),
        np.zeros(0, np.int32),
        none,
        none,
        none,
        finish_reason=FinishReason.ERROR,
        message=message,
    )
