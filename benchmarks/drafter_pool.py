"""Drafters beside the target against drafters in a pool: step times, tokens a second, and what overlap hides.

python benchmarks/drafter_pool.py TARGET DRAFTER [--candidates 8] [--tokens 128] [--delays 0 5] [--device cpu]

DRAFTER is a folder of `tts-orch drafter train` or a small language model. A delay, in milliseconds, is slept for every
trajectory of a draft: a larger drafter, on a device of its own. The pool is an actor of a local Ray.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tts_orch.actors._event_loop import EventLoopThread
from tts_orch.actors.cluster import Cluster
from tts_orch.actors.drafter_pool import DrafterLoader
from tts_orch.actors.pool_keeper import PoolKeeper
from tts_orch.actors.pool_place import place_of_pool
from tts_orch.bench.markdown import table
from tts_orch.config import EngineConfig
from tts_orch.drafters.loading import pool_loader, trained_loader
from tts_orch.drafters.pool_link import PoolLink
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target, load_target
from tts_orch.placement_config import ANYWHERE
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, SlotSource, TrajectoryId
from tts_orch.records import DecodeRequest, SamplingParams

_NAME = "drafter"
_HEADER = (
    "delay a trajectory, ms",
    "drafts",
    "tokens/step",
    "step, ms",
    "tokens/s",
    "waited, ms/step",
    "hidden, ms/step",
)


class DelayedDrafter:
    """A drafter that takes longer.

    Args:
        drafter: is asked.
        seconds: slept for each trajectory of a draft.
    """

    def __init__(self, drafter: Drafter, seconds: float) -> None:
        self._drafter = drafter
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> DelayedSlots:
        """Return slots that take longer to grow."""
        return DelayedSlots(self._drafter.slots(trajectories), self._seconds)


@dataclass(frozen=True)
class DelayedSlots:
    """Slots of a `DelayedDrafter`."""

    slots: SlotSource
    seconds: float

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Sleep, then grow."""
        time.sleep(self.seconds * len(n_nodes))
        return self.slots.grow(n_nodes)


def delayed_loader(config: EngineConfig, *, seconds: float) -> DrafterLoader:
    """Return what loads drafters that take longer, in a pool."""
    load = pool_loader(config)
    return lambda folder: DelayedDrafter(load(folder), seconds)


@contextmanager
def pool(config: EngineConfig, seconds: float) -> Iterator[PoolLink]:
    """Keep a pool while it is measured."""
    loop = EventLoopThread()
    load = functools.partial(delayed_loader, seconds=seconds)
    keeper = PoolKeeper(place_of_pool(config, 1, ANYWHERE), load)
    try:
        yield loop.run(keeper.start())
    finally:
        loop.run(keeper.close())
        loop.close()


def requests(target: Target, n: int, n_tokens: int) -> list[DecodeRequest]:
    """Return candidates of different prompts; each has so many tokens."""
    law = SamplingParams(temperature=0.6, max_new_tokens=n_tokens, min_new_tokens=n_tokens)
    prompts = [f"Question: A box holds {i + 3} pens. How many pens do {i + 2} boxes hold?\nAnswer:" for i in range(n)]
    encoded = [np.array(target.tokenizer(text)["input_ids"], np.int32) for text in prompts]
    return [DecodeRequest(str(i), ids, len(ids), i, law, "scope") for i, ids in enumerate(encoded)]


def measure(target: Target, config: EngineConfig, drafter: Drafter | None, candidates: int, tokens: int) -> list[float]:
    """Decode twice and return the second time's columns of the table."""
    decoder = Decoder(target, drafter, config, CostModel([1.0], [1 << 30]))
    for part in ("warm-up", "measured"):
        before = decoder.statistics()
        started, n_steps = time.perf_counter(), 0
        for one in requests(target, candidates, tokens if part == "measured" else 8):
            decoder.submit(one)
        while not decoder.is_idle:
            decoder.step()
            n_steps += 1
        seconds = time.perf_counter() - started
    grown = {name: value - before.get(name, 0.0) for name, value in decoder.statistics().items()}
    return [
        grown["committed_tokens"] / grown["verify_steps"],
        1000 * seconds / n_steps,
        grown["committed_tokens"] / seconds,
        1000 * grown.get("pool_waited_seconds", 0.0) / n_steps,
        1000 * grown.get("pool_hidden_seconds", 0.0) / n_steps,
    ]


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("drafter", type=Path)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--max-nodes", type=int, default=16)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.0, 5.0])
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    beside = EngineConfig(
        target=given.target,
        drafter="neural",
        drafters={_NAME: given.drafter},
        device=given.device,
        max_batch=given.candidates,
        max_nodes=given.max_nodes,
        node_budget=False,
        numerics="fast",
    )
    pooled = beside.model_copy(update={"drafter_placement": "pooled"})
    overlapped = pooled.model_copy(update={"draft_overlap": True})
    target = load_target(beside)
    run = functools.partial(measure, target, candidates=given.candidates, tokens=given.tokens)
    rows: list[list[float | str]] = [["-", "none", *run(config=beside, drafter=None)]]
    cluster = Cluster()
    for delay in given.delays:
        local = DelayedDrafter(trained_loader(beside, target)(given.drafter), delay / 1000)
        rows.append([delay, "beside the target", *run(config=beside, drafter=local)])
        with pool(beside, delay / 1000) as link:
            for name, config in (("pooled", pooled), ("pooled, overlapped", overlapped)):
                rows.append([delay, name, *run(config=config, drafter=link.drafter(_NAME, given.max_nodes))])
    cluster.close()
    print(table(_HEADER, rows, digits=1))


if __name__ == "__main__":
    main()
