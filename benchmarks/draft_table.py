"""The n-gram table of STAND: microseconds to observe and to draft, bytes an entry, a full table, an endless stream.

python benchmarks/draft_table.py [--recording recording.npz]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from noise import machine

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.context_delta import KEPT, ORDERS
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.ngram_kernels import HEADERS, KEYS, N_IDS
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.stand_contexts import contexts_of_text
from tts_orch.policies.drafting.warm_up import warm_up
from tts_orch.records import FloatArray, IntArray, SamplingParams
from tts_orch.replay.recording import Recording

_VOCABULARY_SIZE = 49_152
_STEP = 10  # committed tokens of a verify step
_NODES = 80
_ENTRIES = 1 << 20

Text: TypeAlias = tuple[str, IntArray, IntArray, FloatArray]
"""Scope, `[n]` tokens, and the law `[n, k]` that each was drawn from."""


def recorded_texts(path: Path) -> list[Text]:
    """Return the outputs of a recording."""
    return [(one.problem_id, one.tokens, one.law_ids, one.law_probs) for one in Recording.load(path).trajectories]


def synthetic_texts(generator: np.random.Generator, mean_ids: float) -> list[Text]:
    """Return 16 variations of one text, a fifth of it changed in each."""
    original, texts = generator.integers(0, _VOCABULARY_SIZE, 256), []
    for _ in range(16):
        is_changed = generator.random(256) < 0.2
        tokens = np.where(is_changed, generator.integers(0, _VOCABULARY_SIZE, 256), original).astype(np.int32)
        ids, probs = synthetic_laws(generator, 256, mean_ids)
        ids[:, 0] = tokens
        texts.append(("problem", tokens, ids, probs))
    return texts


def synthetic_laws(generator: np.random.Generator, n: int, mean_ids: float) -> tuple[IntArray, FloatArray]:
    """Return laws whose number of ids is uniform with this mean, their probabilities in arithmetic progression."""
    n_ids = generator.integers(1, round(2 * mean_ids), n)[:, None]
    falling = np.maximum(n_ids - np.arange(KEPT), 0).astype(np.float32)
    first = generator.integers(0, _VOCABULARY_SIZE, (n, 1))
    ids = (first + np.arange(KEPT) * 1009) % _VOCABULARY_SIZE
    return ids.astype(np.int32), falling / falling.sum(axis=1, keepdims=True)


def resident_mib() -> float:
    """Return the resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def microseconds(run: Callable[[], object]) -> float:
    """Return the processor time of one call: others on the machine hardly count, a stall does."""
    started = time.thread_time_ns()
    run()
    return (time.thread_time_ns() - started) / 1000


def observe_text(table: NgramTable, text: Text) -> list[float]:
    """Observe a text step by step; return the time of each call."""
    scope, tokens, ids, probs = text
    history = contexts_of_text(tokens, 0, len(tokens) - 1)
    salts, times = np.full(_STEP, table.open(scope)), []
    for first in range(0, len(history) - _STEP + 1, _STEP):
        rows, laws = slice(first, first + _STEP), slice(first + 1, first + 1 + _STEP)
        times.append(microseconds(partial(table.observe, salts, history[rows], ids[laws], probs[laws])))
    return times


def print_table_figures(texts: list[Text]) -> None:
    """Print what observing costs, and the size of the entries."""
    table = NgramTable(max_entries=_ENTRIES, vocabulary_size=_VOCABULARY_SIZE)
    first = [observe_text(table, text) for text in texts]
    again = [observe_text(table, text) for text in texts]
    for name, times in (("first", first), ("second", again)):
        print(f"table.observe, {_STEP} tokens, {name} time: {np.median(np.concatenate(times)):.1f} us")
    n_ids = table.columns[HEADERS][table.columns[KEYS] != 0, N_IDS]
    slots = table.columns[KEYS].nbytes + table.columns[HEADERS].nbytes
    print(
        f"{table.size} entries of {n_ids.mean():.1f} ids in the mean, {(table.size_bytes - slots) / table.size:.0f} bytes each"
    )
    print(f"    and {slots / _ENTRIES:.0f} bytes of slots an entry of a full table")


def step_of(tokens: IntArray, ids: IntArray, probs: FloatArray, first: int) -> VerifiedStep:
    """Return the step that accepts a chain of 9 nodes and commits 10 tokens."""
    committed = tokens[first + 1 : first + 1 + _STEP]
    tree = DraftTree.chain(int(tokens[first]), committed[:-1].tolist())
    laws = slice(first + 1, first + 1 + _STEP)
    return VerifiedStep("text", tree, np.arange(1, len(committed)), committed, ids[laws], probs[laws])


def time_drafter(drafter: Drafter, text: Text, seed: int) -> tuple[list[float], list[float], list[int]]:
    """Draft and observe a text step by step; return times of both, and the nodes drafted."""
    scope, tokens, ids, probs = text
    drafter.start(TrajectoryStart("text", tokens[:1], scope, seed, SamplingParams(temperature=0.7)))
    drafting, observing, n_nodes = [], [], []
    for first in range(0, len(tokens) - _STEP - 1, _STEP):
        started = time.thread_time_ns()
        (tree,) = drafter.slots(["text"]).grow([_NODES])
        drafting.append((time.thread_time_ns() - started) / 1000)
        n_nodes.append(tree.n_nodes - 1)
        observing.append(microseconds(partial(drafter.observe, [step_of(tokens, ids, probs, first)])))
    drafter.close("text")
    return drafting, observing, n_nodes


def print_drafter_figures(texts: list[Text]) -> None:
    """Print what drafting and observing cost through the drafter, for one trajectory."""
    drafter = make_drafter(DraftingConfig(drafter="stand", node_budget=False), vocabulary_size=_VOCABULARY_SIZE)
    if drafter is None:
        raise SystemExit("stand is not a drafter here")
    parts = [time_drafter(drafter, text, seed) for seed, text in enumerate(texts)]
    drafting, observing, n_nodes = (np.concatenate(part) for part in zip(*parts, strict=True))
    large = n_nodes >= 0.9 * _NODES
    print(f"Stand.observe, {_STEP} tokens: {np.median(observing):.1f} us")
    print(
        f"Stand.grow, {_NODES} nodes asked for: {np.median(drafting):.1f} us for {np.mean(n_nodes):.0f} nodes in the mean"
    )
    if large.any():
        print(f"    trees of {n_nodes[large].mean():.0f} nodes in the mean: {np.median(drafting[large]):.1f} us")


def print_full_table(n_entries: int, mean_ids: float) -> None:
    """Fill a table to its last entry and print memory and speed."""
    before = resident_mib()
    table = NgramTable(max_entries=n_entries)
    generator, salt = np.random.default_rng(0), table.open("run")
    n_rows, seconds = 10_000, 0.0
    while table.size < n_entries and not table.n_evicted:
        history = generator.integers(0, 1 << 31, (n_rows, ORDERS)).astype(np.int32)
        laws, salts = synthetic_laws(generator, n_rows, mean_ids), np.full(n_rows, salt)
        seconds += microseconds(partial(table.observe, salts, history, *laws)) / 1e6
    used = resident_mib() - before
    occupied = table.columns[HEADERS][table.columns[KEYS] != 0, N_IDS]
    print(f"{table.size} entries of {occupied.mean():.1f} ids: {used:.0f} MiB more resident memory,")
    print(
        f"    {used * 2**20 / table.size:.0f} bytes an entry, all included; {table.size / seconds / 1e6:.2f} million entries a second"
    )


def print_stream(n_tokens: int, mean_ids: float) -> None:
    """Stream tokens through a small table and print memory over time and the longest call."""
    table, generator = NgramTable(max_entries=10_000), np.random.default_rng(0)
    salts, times, memory = np.full(_STEP, table.open("run")), [], []
    ids, probs = synthetic_laws(generator, 10_000, mean_ids)
    for n in range(0, n_tokens, _STEP):
        history = generator.integers(0, _VOCABULARY_SIZE, (_STEP, ORDERS)).astype(np.int32)
        rows = slice(n % 10_000, n % 10_000 + _STEP)
        times.append(microseconds(partial(table.observe, salts, history, ids[rows], probs[rows])))
        if n % (n_tokens // 10) == 0:
            memory.append(resident_mib())
    print(
        f"{n_tokens} tokens through {table.size} entries, {table.n_evicted} evicted: {np.median(times):.1f} us a step of {_STEP},"
    )
    print(f"    99.9 % below {np.quantile(times, 0.999):.0f} us, longest {max(times):.0f} us; resident MiB over time:")
    print("    " + " ".join(f"{mib:.1f}" for mib in memory))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path, help="trajectories to observe and draft; synthetic ones if not given")
    parser.add_argument("--mean-ids", type=float, default=16.4, help="ids an entry of synthetic laws (16.4)")
    parser.add_argument("--entries", type=int, default=10_000_000, help="entries of the full table (10 000 000)")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="tokens of the stream (1 000 000)")
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    texts = (
        recorded_texts(arguments.recording) if arguments.recording else synthetic_texts(generator, arguments.mean_ids)
    )
    print(machine())
    print(f"first use, compiled or loaded: {microseconds(partial(warm_up, DraftingConfig())) / 1e6:.2f} s")
    print_table_figures(texts)
    print_drafter_figures(texts)
    print_stream(arguments.tokens, arguments.mean_ids)
    print_full_table(arguments.entries, arguments.mean_ids)


if __name__ == "__main__":
    main()
