"""Workers of a benchmark: a decoder with the replica of its draft statistics, stepped as the engine thread steps them."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tts_orch.bench.decoding import new_decoder
from tts_orch.bench.decoding import request as request_of
from tts_orch.bench.workloads import Prompt, read_prompts
from tts_orch.config import EngineConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target, load_target
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.warm_up import warm_up
from tts_orch.records import DecodeRequest, SamplingParams
from tts_orch.store.base import StatisticsLog
from tts_orch.store.replica import Replica

__all__ = ["Decoded", "Worker", "Workshop"]


@dataclass
class Decoded:
    """What a worker has decoded.

    Attributes:
        outputs: tokens by trajectory index.
        verify_steps: by trajectory index.
        step_s: seconds of each step, with the replica's part.
    """

    outputs: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    verify_steps: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    step_s: list[float] = field(default_factory=list)

    @property
    def n_tokens(self) -> int:
        """Tokens of all trajectories."""
        return sum(map(len, self.outputs.values()))


class Worker:
    """Decodes requests, `batch` at a time."""

    def __init__(self, decoder: Decoder, replica: Replica | None, batch: int) -> None:
        self.decoder = decoder
        self.replica = replica
        self.decoded = Decoded()
        self._batch = batch
        self._waiting: list[DecodeRequest] = []
        self._n_running = 0

    def submit(self, requests: Sequence[DecodeRequest]) -> None:
        """Queue requests."""
        self._waiting += requests

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._waiting and not self._n_running

    def step(self) -> None:
        """Take part in the shared statistics, then make one verify step."""
        while self._waiting and self._n_running < self._batch:
            self.decoder.submit(self._waiting.pop(0))
            self._n_running += 1
        started = time.perf_counter()
        if self.replica is not None:
            self.replica.apply()
        chunks = self.decoder.step()
        self.decoded.step_s.append(time.perf_counter() - started)
        for chunk in chunks:
            index = int(chunk.candidate_id.rpartition("/")[2])
            self.decoded.outputs[index].extend(chunk.token_ids.tolist())
            self.decoded.verify_steps[index] += chunk.verify_steps
            self._n_running -= chunk.finish_reason is not None

    def decode(self, requests: Sequence[DecodeRequest], after_step: Callable[[int], None] = lambda n: None) -> Decoded:
        """Decode requests and return what came of them; `after_step` gets the number of steps so far."""
        self.decoded = Decoded()
        self.submit(requests)
        while not self.is_idle:
            self.step()
            after_step(len(self.decoded.step_s))
        return self.decoded

    def close(self) -> None:
        """Send what is left of the statistics, and end the replica."""
        if self.replica is not None:
            self.replica.close()


class Workshop:
    """Makes workers on one target, which all share.

    Args:
        arguments: `target`, `tokens`, `samples`, `problems`, `limit`, `threads`.

    Attributes:
        target: the model.
        prompts: of the problems.
        n_samples: trajectories of each.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._config = EngineConfig(target=arguments.target, threads=arguments.threads)
        self._law = SamplingParams(temperature=0.7, max_new_tokens=arguments.tokens)
        self.n_samples = arguments.samples
        self._costs: CostModel | None = None
        warm_up(self._config)
        self.target: Target = load_target(self._config)
        self.prompts = read_prompts(arguments.problems, None, arguments.limit, self.target.tokenizer)

    def worker(
        self,
        batch: int,
        log: StatisticsLog | None = None,
        *,
        nodes: int | None = None,
        drafter: str = "stand",
        interval_s: float = 0.2,
    ) -> Worker:
        """Return a worker.

        Args:
            batch: trajectories at a time.
            log: where its statistics are shared; None keeps them to itself.
            nodes: of every draft; None drafts as many as pay.
            drafter: its name, or none.
            interval_s: of its replica.
        """
        sizes = {} if nodes is None else {"node_budget": False, "max_nodes": nodes}
        config = self._config.model_copy(update={"drafter": drafter, **sizes})
        made = make_drafter(config, vocabulary_size=self.target.vocab_size, is_shared=log is not None)
        if self._costs is None and nodes is None and made is not None:
            self._costs = self.target.measure_cost(self.n_samples)
        replica = None
        if log is not None and isinstance(made, Stand):
            replica = Replica(made, log, f"worker {id(made)}", interval_s=interval_s)
        return Worker(new_decoder(self.target, made, config, batch, self._costs), replica, batch)

    def requests(self, prompt: Prompt, scope: str) -> list[DecodeRequest]:
        """Return the requests of a problem's trajectories."""
        return [request_of(prompt, index, self._law, 0, scope) for index in range(self.n_samples)]
