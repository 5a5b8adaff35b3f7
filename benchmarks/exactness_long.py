"""The long check of `numerics: bitwise`: many tokens and log-probabilities of a real model, compared bit for bit.

    python benchmarks/exactness_long.py --target smollm2 --problems gsm8k_test.jsonl.gz --tokens 200000

A round takes one problem and one seed and decodes plainly; then every variant decodes the same trajectories: other
drafters, batches and chunks of the prefill, from prefixes in the middle, and in a second process with another number of
threads. Rounds are numbered and do not depend on each other, so that the check can be run in parts with `--first-seed`.
The last line tells how much was compared and where to go on; any difference makes the exit code 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target, load_target
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.records import Chunk, DecodeRequest, Problem, SamplingParams
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render

_LAWS = (
    SamplingParams(temperature=0.7, top_p=0.95),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.6, min_p=0.02, repetition_penalty=1.1, stop_strings=("\n\n",)),
)
"""Rounds take them in turn."""
_KV_MEMORY_GIB = 0.5


@dataclass(frozen=True)
class Variant:
    """A way to decode.

    Attributes:
        drafter: name of the drafter.
        max_batch: trajectories decoded together.
        max_nodes: draft nodes of every trajectory in every step; rows are taken as free.
        prefill_chunk: prompt tokens a pass.
        n_trajectories: how many of the round's trajectories it decodes; slow variants take few.
        is_forked: starts from the prompt and some tokens of each trajectory's output.
        is_elsewhere: runs in the second process.
    """

    drafter: str
    max_batch: int
    max_nodes: int = 0
    prefill_chunk: int = 256
    n_trajectories: int = 1 << 30
    is_forked: bool = False
    is_elsewhere: bool = False


_PLAIN = Variant("none", 16)
_VARIANTS = {
    "plain, batch 1": Variant("none", 1, n_trajectories=2),
    "plain, batch 4": Variant("none", 4, n_trajectories=8),
    "plain, batch 32": Variant("none", 32),
    "stand, batch 1": Variant("stand", 1, 16, n_trajectories=3),
    "stand, batch 4": Variant("stand", 4, 8, n_trajectories=8),
    "stand, batch 16": Variant("stand", 16, 4),
    "stand, batch 32": Variant("stand", 32, 3),
    "prompt lookup, batch 1": Variant("prompt_lookup", 1, 10, n_trajectories=3),
    "prompt lookup, batch 16": Variant("prompt_lookup", 16, 3),
    "stand, prefill in chunks of 5": Variant("stand", 16, 2, prefill_chunk=5),
    "stand, forked prefixes": Variant("stand", 16, 4, is_forked=True),
    "plain, other process": Variant("none", 16, n_trajectories=8, is_elsewhere=True),
    "stand, other process, forked": Variant("stand", 8, 4, is_forked=True, is_elsewhere=True),
}


@dataclass
class Output:
    """What came out of one trajectory."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def append(self, chunk: Chunk) -> None:
        """Add what a step committed."""
        self.tokens += chunk.token_ids.tolist()
        self.log_probs += chunk.log_probs.tolist()


@dataclass
class Tally:
    """What a variant was compared on."""

    n_trajectories: int = 0
    n_tokens: int = 0
    n_steps: int = 0
    seconds: float = 0.0
    differences: list[str] = field(default_factory=list)

    def compare(self, name: str, want: Output, got: Output, start: int = 0) -> None:
        """Count a trajectory; `got` begins at output token `start` of `want`."""
        self.n_trajectories += 1
        self.n_tokens += len(got.tokens)
        pairs = zip(want.tokens[start:], want.log_probs[start:], strict=True)
        wanted, found = list(pairs), list(zip(got.tokens, got.log_probs, strict=True))
        if wanted != found:
            place = next((i for i, pair in enumerate(zip(wanted, found, strict=False)) if pair[0] != pair[1]), -1)
            there = f"{wanted[place]} and {found[place]}" if place >= 0 else f"lengths {len(wanted)} and {len(found)}"
            self.differences.append(f"{name}: output token {start + max(place, 0)}: {there}")


def decode(target: Target, variant: Variant, requests: Sequence[DecodeRequest]) -> tuple[dict[str, Output], int]:
    """Return the outputs by candidate and the number of verify steps."""
    config = EngineConfig(
        target="any",
        max_batch=variant.max_batch,
        max_nodes=variant.max_nodes,
        prefill_chunk=variant.prefill_chunk,
        kv_memory_gib=_KV_MEMORY_GIB,
    )
    free_rows = CostModel([1.0], [1 << 30])
    decoder = Decoder(
        target,
        make_drafter(DraftingConfig(drafter=variant.drafter), vocabulary_size=target.vocab_size),
        config,
        free_rows,
    )
    for request in requests:
        decoder.submit(request)
    outputs = {request.candidate_id: Output() for request in requests}
    while not decoder.is_idle:
        for chunk in decoder.step():
            outputs[chunk.candidate_id].append(chunk)
    return outputs, decoder.counters.verify_steps


_elsewhere: list[Target] = []
"""The second process's target."""


def _load_elsewhere(name: str, threads: int) -> None:
    _elsewhere.append(load_target(EngineConfig(target=name, numerics="bitwise", threads=threads)))


def _decode_elsewhere(variant: Variant, requests: Sequence[DecodeRequest]) -> tuple[str, dict[str, Output], int]:
    return (_elsewhere[0].fingerprint, *decode(_elsewhere[0], variant, requests))


def requests_of_round(
    target: Target, problem: Problem, seed: int, n_samples: int, max_new_tokens: int
) -> list[DecodeRequest]:
    """Return the trajectories of one round."""
    assert target.tokenizer is not None
    prompt = render(problem, target.tokenizer)
    law = replace(_LAWS[seed % len(_LAWS)], max_new_tokens=max_new_tokens)
    return [
        DecodeRequest(str(i), prompt, len(prompt), trajectory_seed(seed, problem.id, (i,)), law, problem.id)
        for i in range(n_samples)
    ]


def forked(request: DecodeRequest, output: Output, seed: int) -> DecodeRequest:
    """Return the request that goes on from a random place of its own output."""
    n_kept = int(np.random.default_rng([seed, int(request.candidate_id)]).integers(0, len(output.tokens)))
    kept = np.array(output.tokens[:n_kept], np.int32)
    token_ids = np.concatenate([request.token_ids, kept])
    return replace(request, token_ids=token_ids, statistics_from=len(token_ids))


class LongCheck:
    """Rounds of one target, and what they found."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._problems = read_problems(arguments.problems)
        self._target = load_target(EngineConfig(target=arguments.target, numerics="bitwise", threads=arguments.threads))
        self._pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), _load_elsewhere, (arguments.target, arguments.other_threads)
        )
        self.tallies = {name: Tally() for name in _VARIANTS}

    @property
    def n_tokens(self) -> int:
        """Tokens compared so far."""
        return sum(tally.n_tokens for tally in self.tallies.values())

    @property
    def differences(self) -> list[str]:
        """All differences found."""
        return [f"{name}: {line}" for name, tally in self.tallies.items() for line in tally.differences]

    @property
    def promise(self) -> str:
        """What the target says of itself."""
        return f"{self._target.name}, numerics {self._target.numerics}, fingerprint {self._target.fingerprint}"

    def round(self, seed: int) -> None:
        """Decode one problem plainly and by every variant."""
        arguments, problem = self._arguments, self._problems[seed % len(self._problems)]
        requests = requests_of_round(self._target, problem, seed, arguments.samples, arguments.max_new_tokens)
        expected, _ = decode(self._target, _PLAIN, requests)
        for name, variant in _VARIANTS.items():
            started = time.perf_counter()
            asked = requests[: variant.n_trajectories]
            if variant.is_forked:
                asked = [forked(request, expected[request.candidate_id], seed) for request in asked]
            outputs, n_steps = self._decode(variant, asked)
            tally = self.tallies[name]
            tally.seconds += time.perf_counter() - started
            tally.n_steps += n_steps
            for request in asked:
                start = len(request.token_ids) - request.prompt_length
                place = f"seed {seed}, {problem.id}, sample {request.candidate_id}"
                tally.compare(place, expected[request.candidate_id], outputs[request.candidate_id], start)

    def _decode(self, variant: Variant, requests: Sequence[DecodeRequest]) -> tuple[dict[str, Output], int]:
        if not variant.is_elsewhere:
            return decode(self._target, variant, requests)
        fingerprint, outputs, n_steps = self._pool.submit(_decode_elsewhere, variant, requests).result()
        if fingerprint != self._target.fingerprint:
            sys.exit(f"the second process has fingerprint {fingerprint}, this one {self._target.fingerprint}")
        return outputs, n_steps

    def table(self) -> str:
        """Return a line a variant."""
        lines = [f"{'variant':32} {'trajectories':>12} {'tokens':>9} {'tau':>6} {'tokens/s':>9} {'differences':>12}"]
        for name, tally in self.tallies.items():
            tau, rate = tally.n_tokens / max(tally.n_steps, 1), tally.n_tokens / max(tally.seconds, 1e-9)
            lines.append(
                f"{name:32} {tally.n_trajectories:12,} {tally.n_tokens:9,} {tau:6.2f} {rate:9.1f} "
                f"{len(tally.differences):12}"
            )
        return "\n".join(lines)

    def close(self) -> None:
        """End the second process."""
        self._pool.shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="smollm2", help="a target served with numerics: bitwise")
    parser.add_argument("--problems", type=Path, default=Path("examples/problems/word_problems.jsonl"))
    parser.add_argument("--tokens", type=int, default=200_000, help="tokens to compare in this part, over all variants")
    parser.add_argument("--first-seed", type=int, default=0, help="round to begin with")
    parser.add_argument("--samples", type=int, default=16, help="trajectories a round; 32 fill the largest batch")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--other-threads", type=int, default=1, help="threads of the second process")
    return parser


def main() -> int:
    """Run rounds until enough was compared."""
    arguments = _parser().parse_args()
    check, seed, started = LongCheck(arguments), arguments.first_seed, time.perf_counter()
    print(f"{check.promise}, {arguments.threads} threads here and {arguments.other_threads} in the second process")
    while check.n_tokens < arguments.tokens:
        check.round(seed)
        seed += 1
        passed = time.perf_counter() - started
        print(
            f"seed {seed - 1}: {check.n_tokens:,} of {arguments.tokens:,} tokens compared in {passed:.0f} s, "
            f"{len(check.differences)} differences",
            flush=True,
        )
    check.close()
    print(check.table())
    for line in check.differences[:20]:
        print(line)
    print(
        f"exactness: {check.n_tokens:,} tokens and log-probabilities compared, {len(check.differences)} differences; "
        f"go on with --first-seed {seed}"
    )
    return 1 if check.differences else 0


if __name__ == "__main__":
    sys.exit(main())
