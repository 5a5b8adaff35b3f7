"""The actor that hosts one decoder: a target model on one device, stepped by a thread of its own.

Tokens leave by a long poll, not by a stream: a streaming generator hangs when its node is lost, goes on producing after
its reader dropped it, and is replayed by index when its actor restarts, which loses or doubles tokens wherever the chunks
fall differently. A poll that names what it has seen can simply be asked again.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tts_orch.actors._cluster_nodes import current_node
from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._engine_thread import EngineThread
from tts_orch.actors._remote import SHORT_SPIN, remote
from tts_orch.actors.engine_loading import EngineFactory
from tts_orch.config import EngineConfig
from tts_orch.errors import WorkerLostError
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Chunk, DecodeRequest
from tts_orch.store.base import StatisticsLog

__all__ = ["LogOpener", "TargetVerifier", "TargetVerifierCore", "VerifierDescription"]

LogOpener: TypeAlias = Callable[[], StatisticsLog]
"""Opens a log in the process that calls it: connections cannot be sent there."""

_STALLED_AFTER_S: Final = 600.0  # a first step may compile kernels; none takes that long
_ANSWER_WITHIN_S: Final = 60.0
_ENDED_REMEMBERED: Final = 4096  # a lost order that arrives after all is far younger


@dataclass(frozen=True, slots=True)
class VerifierDescription:
    """What a controller must know of a verifier.

    Attributes:
        worker: host and process id.
        fingerprint: digest of the numerics; verifiers of equal fingerprint give equal logits.
        weights_id: digest of the weights.
        tokenizer_id: digest of the tokenizer's vocabulary.
        numerics: `bitwise` or `fast`.
        dtype: type of the weights, such as `float32`.
        capacity: trajectories that it decodes together.
        max_context: positions a trajectory may reach.
        tokenizer: the target's, so that a driver needs no path to the model.
        node: id of the node that it runs on, empty without a cluster.
    """

    worker: str
    fingerprint: str
    weights_id: str
    tokenizer_id: str
    numerics: str
    dtype: str
    capacity: int
    max_context: int
    tokenizer: Any = field(repr=False)
    node: str = ""

    @property
    def model(self) -> tuple[str, ...]:
        """What all verifiers of a run have in common."""
        return self.weights_id, self.tokenizer_id, self.numerics, self.dtype


class TargetVerifierCore:
    """Hosts an engine; one controller talks to it.

    Args:
        config: the engine's settings.
        make_engine: loads it.
        open_log: opens the shared statistics log in this process, None keeps the statistics to itself.
    """

    def __init__(self, config: EngineConfig, make_engine: EngineFactory, open_log: LogOpener | None = None) -> None:
        self._config = config
        self._make_engine = make_engine
        self._open_log = open_log
        self._ordering = threading.Lock()
        self._live: set[str] = set()
        self._ended: deque[str] = deque(maxlen=_ENDED_REMEMBERED)

    def load(self) -> VerifierDescription:
        """Load the target model and start to serve; called once, before everything else.

        Raises:
            TargetError: the model cannot be found, read or served.
        """
        self._engine = engine = self._make_engine(self._config, self._open_log() if self._open_log else None)
        self._thread = EngineThread(engine.decoder, engine.replica)
        return VerifierDescription(
            worker=f"{socket.gethostname()}:{os.getpid()}",
            fingerprint=engine.fingerprint,
            weights_id=engine.weights_id,
            tokenizer_id=engine.tokenizer_id,
            numerics=engine.numerics,
            dtype=engine.dtype,
            capacity=self._config.max_batch,
            max_context=engine.max_context,
            tokenizer=engine.tokenizer,
            node=current_node(),
        )

    def exchange(
        self, submit: Sequence[DecodeRequest], cancel: Sequence[str], acknowledged: int, wait_s: float
    ) -> tuple[int, list[Chunk]]:
        """Take orders and return what was committed; safe to ask again when the reply was lost.

        Args:
            submit: requests to decode; one whose id is known is ignored.
            cancel: candidate ids to end; unknown ones are ignored.
            acknowledged: sequence number of the last reply that arrived, 0 at first.
            wait_s: how long to wait for chunks, in seconds.

        Returns:
            A sequence number to acknowledge, and all chunks since the acknowledged one.

        Raises:
            WorkerLostError: the engine failed or hangs; this verifier is of no more use.
        """
        self.order(submit, cancel)
        if self._thread.step_age_s > _STALLED_AFTER_S:
            raise WorkerLostError(f"the engine has been in one verify step for {self._thread.step_age_s:.0f} s")
        sequence, chunks = self._thread.buffer.read(acknowledged, wait_s)
        self._note_ended(chunks)
        return sequence, chunks

    def order(self, submit: Sequence[DecodeRequest], cancel: Sequence[str]) -> None:
        """Take orders as `exchange` does, beside one that waits for chunks."""
        with self._ordering:  # two polls may bring the same orders at once
            for request in submit:
                if request.candidate_id not in self._live and request.candidate_id not in self._ended:
                    self._live.add(request.candidate_id)
                    self._thread.submit(request)
            for candidate_id in cancel:
                self._thread.cancel(candidate_id)

    def _note_ended(self, chunks: Sequence[Chunk]) -> None:
        with self._ordering:
            for chunk in chunks:
                if chunk.finish_reason is not None and chunk.candidate_id in self._live:
                    self._live.remove(chunk.candidate_id)
                    self._ended.append(chunk.candidate_id)

    def statistics(self) -> dict[str, float]:
        """Return the decoder's counters, and those of the exchange with the store."""
        of_decoder = self._thread.ask(lambda decoder: decoder.statistics()).result(_ANSWER_WITHIN_S)
        return {**of_decoder, **self._thread.store_statistics()}

    def routing_report(self) -> RoutingReport:
        """Return what each of several drafters did since the last call."""
        return self._thread.ask(lambda decoder: decoder.routing_report()).result(_ANSWER_WITHIN_S)

    def change_drafter(self, change: DrafterChange) -> None:
        """Draft with changed drafters from the step after the running one on.

        Raises:
            ConfigError: the new one cannot be read, is for another target, or does not suit this run.
        """
        apply = self._engine.prepare_change(change)
        self._thread.ask(lambda decoder: decoder.change_drafter(apply)).result(_ANSWER_WITHIN_S)

    def close_scope(self, scope: str) -> None:
        """Forget the draft statistics of a scope."""
        self._thread.ask(lambda decoder: decoder.close_scope(scope))

    def ping(self) -> None:
        """Answer; runs in the health group."""

    def close(self) -> None:
        """Stop the engine after its running step and send what is left of its statistics."""
        self._thread.stop(_ANSWER_WITHIN_S)


# Four threads: a poll, the poll that replaces it when its reply was lost, and two for orders and short questions.
TargetVerifier = remote(
    TargetVerifierCore, max_concurrency=4, scheduling_strategy="SPREAD", runtime_env={"env_vars": SHORT_SPIN}
)
