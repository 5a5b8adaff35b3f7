"""Real decoding for the benchmark: trajectories of one problem after another, with what each pass took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tts_orch.bench.methods import cost_model
from tts_orch.bench.workloads import Prompt
from tts_orch.config import EngineConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.records import DecodeRequest, SamplingParams
from tts_orch.seeds import trajectory_seed

__all__ = ["Decoded", "decode", "new_decoder", "request"]

_KV_MEMORY_GIB = 1.0


@dataclass(frozen=True, slots=True)
class Decoded:
    """What was decoded of one problem.

    Attributes:
        outputs: output tokens by trajectory index.
        seconds: wall time, prompts included.
        verify_steps: of all trajectories.
        pass_rows: `[passes]` rows of each forward pass.
    """

    outputs: dict[int, list[int]]
    seconds: float
    verify_steps: int
    pass_rows: list[int]

    @property
    def n_tokens(self) -> int:
        """Tokens of all trajectories."""
        return sum(map(len, self.outputs.values()))

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.n_tokens / self.seconds


def new_decoder(
    target: Target, drafter: Drafter | None, config: EngineConfig, batch: int, costs: CostModel | None = None
) -> Decoder:
    """Return a decoder for so many trajectories at a time; what it learns of `costs` it learns in a copy of its own."""
    limits = {"max_batch": batch, "kv_memory_gib": _KV_MEMORY_GIB}
    own_costs = cost_model(costs.table()) if costs else None
    return Decoder(target, drafter, config.model_copy(update=limits), own_costs)


def decode(decoder: Decoder, requests: Sequence[DecodeRequest], batch: int) -> Decoded:
    """Decode trajectories of one problem, `batch` at a time; statistics of their scope stay.

    Args:
        decoder: an idle one.
        requests: the trajectories.
        batch: how many at a time; when one ends the next one takes its place.
    """
    outputs: dict[int, list[int]] = defaultdict(list)
    waiting, running, pass_rows = list(reversed(requests)), 0, []
    before, started = decoder.counters.verify_steps, time.perf_counter()
    while waiting or running:
        while waiting and running < batch:
            decoder.submit(waiting.pop())
            running += 1
        n_rows = _rows(decoder)
        for chunk in decoder.step():
            outputs[int(chunk.candidate_id.rpartition("/")[2])].extend(chunk.token_ids.tolist())
            running -= chunk.finish_reason is not None
        pass_rows.append(_rows(decoder) - n_rows)
    seconds = time.perf_counter() - started
    return Decoded(dict(outputs), seconds, decoder.counters.verify_steps - before, pass_rows)


def request(prompt: Prompt, index: int, law: SamplingParams, seed: int, scope: str) -> DecodeRequest:
    """Return the request of one trajectory."""
    name, key = f"{prompt.problem_id}/{index}", trajectory_seed(seed, prompt.problem_id, [index])
    return DecodeRequest(name, prompt.token_ids, len(prompt.token_ids), key, law, scope)


def _rows(decoder: Decoder) -> int:
    counters = decoder.counters
    return counters.verify_steps + counters.draft_nodes + counters.prefill_tokens
