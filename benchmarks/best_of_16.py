"""Best-of-16 on GSM8K: our decoder with and without drafts beside transformers `generate`, in one run.

    python benchmarks/best_of_16.py --target smollm2 --problems gsm8k_test.jsonl.gz --pairs 10

Every problem is decoded by every variant before the next one, in an order that turns, so that a busy machine hits all
alike. Tokens are real tokens: padding that `generate` puts after EOS does not count. Printed and saved: tokens a second
of each variant, ratios with a bootstrap interval over problems, the A/A band (the same variant twice), tau by trajectory
index, the cost curve, and where the time of a step goes.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from tts_orch.bench.intervals import ratio_interval
from tts_orch.config import EngineConfig
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.model_files import locate
from tts_orch.engine.target import Target, load_target
from tts_orch.engine.threads import n_threads
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.records import DecodeRequest, IntArray, SamplingParams
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render

_PAIRS = (
    ("stand", "generate"),
    ("plain", "generate"),
    ("stand", "plain"),
    ("plain", "plain again"),
    ("plain", "plain fast"),
)
"""What is compared: (a, b) gives the ratio a / b; the same variant twice gives the band of chance."""


@dataclass
class Measurement:
    """What one variant did on one problem."""

    tokens: int
    seconds: float
    outputs: list[list[int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def with_threads(threads: int, run: Callable[..., Measurement], *arguments: object, **options: object) -> Measurement:
    """Run with so many threads for torch; our kernels have their own and leave it one."""
    torch.set_num_threads(threads)
    return run(*arguments, **options)


def decode_ours(
    decoder: Decoder, prompt: IntArray, problem_id: str, *, law: SamplingParams, n: int, lockstep: int
) -> Measurement:
    """Decode n samples; `lockstep` of them run at a time."""
    outputs: dict[str, list[int]] = defaultdict(list)
    steps: dict[str, int] = defaultdict(int)
    started = time.perf_counter()
    waiting = [
        DecodeRequest(f"{problem_id}/{i}", prompt, len(prompt), trajectory_seed(0, problem_id, [i]), law, problem_id)
        for i in range(n)
    ]
    names = [request.candidate_id for request in waiting]
    running = 0
    while waiting or running:
        while waiting and running < lockstep:
            decoder.submit(waiting.pop(0))
            running += 1
        for chunk in decoder.step():
            outputs[chunk.candidate_id].extend(chunk.token_ids.tolist())
            steps[chunk.candidate_id] += chunk.verify_steps
            running -= chunk.finish_reason is not None
    seconds = time.perf_counter() - started
    decoder.close_scope(problem_id)
    return Measurement(
        sum(map(len, outputs.values())), seconds, [outputs[name] for name in names], [steps[name] for name in names]
    )


def generate_stock(
    model: PreTrainedModel, prompt: IntArray, problem_id: str, *, law: SamplingParams, n: int, eos: int
) -> Measurement:
    """Sample n continuations in one batch of transformers `generate`; count up to and with the first EOS."""
    torch.manual_seed(trajectory_seed(0, problem_id, []) % 2**31)
    ids = torch.from_numpy(prompt.astype(np.int64))[None].expand(n, -1)
    started = time.perf_counter()
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=law.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=law.max_new_tokens,
            pad_token_id=eos,
        )
    seconds = time.perf_counter() - started
    rows = output[:, len(prompt) :].tolist()
    tokens = sum(row.index(eos) + 1 if eos in row else len(row) for row in rows)
    return Measurement(tokens, seconds)


def variants(
    arguments: argparse.Namespace, law: SamplingParams
) -> tuple[dict[str, Callable[..., Measurement]], dict[str, Decoder]]:
    """Return a function for each variant, and our decoders."""

    def ours(target: Target, name: str, max_batch: int) -> Decoder:
        config = EngineConfig(target=arguments.target, drafter=name, max_batch=max_batch, kv_memory_gib=1.0)
        return Decoder(target, make_drafter(config, vocabulary_size=target.vocab_size), config)

    bitwise = load_target(EngineConfig(target=arguments.target, threads=arguments.threads))
    fast = load_target(EngineConfig(target=arguments.target, numerics="fast", threads=arguments.threads))
    n, threads = arguments.n, n_threads()
    decoders = {
        "stand": ours(bitwise, "stand", n),
        "plain": ours(bitwise, "none", n),
        "plain again": ours(bitwise, "none", n),
        "plain fast": ours(fast, "none", n),
    }
    functions: dict[str, Callable[..., Measurement]] = {
        name: partial(
            with_threads, threads if name == "plain fast" else 1, decode_ours, decoder, law=law, n=n, lockstep=n
        )
        for name, decoder in decoders.items()
    }
    stock = AutoModelForCausalLM.from_pretrained(locate(arguments.target), dtype=torch.float32)
    functions["generate"] = partial(with_threads, threads, generate_stock, stock, law=law, n=n, eos=bitwise.eos_ids[0])
    decoders["sequential"] = ours(bitwise, "stand", 1)
    return functions, decoders


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--problems", type=Path, default=Path("examples/problems/word_problems.jsonl"))
    parser.add_argument("--pairs", type=int, default=10, help="problems; each is one pair of every two variants")
    parser.add_argument("-n", type=int, default=16, help="samples a problem")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument(
        "--sequential", type=int, default=2, help="problems decoded one trajectory after another, for tau by index"
    )
    parser.add_argument("--without", nargs="*", default=[], help="variants to leave out, such as 'plain fast'")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the figures")
    arguments = parser.parse_args()
    law = SamplingParams(temperature=0.7, max_new_tokens=arguments.max_new_tokens)
    functions, decoders = variants(arguments, law)
    tokenizer = decoders["plain"].target.tokenizer
    problems = read_problems(arguments.problems)[: arguments.pairs]
    functions = {name: function for name, function in functions.items() if name not in arguments.without}
    for function in functions.values():  # compile, allocate, touch memory
        function(render(problems[-1], tokenizer, "chat"), "warm-up")
    results: dict[str, list[Measurement]] = {name: [] for name in functions}
    for i, problem in enumerate(problems):
        prompt = render(problem, tokenizer, "chat")
        names = list(functions)
        for name in names[i % len(names) :] + names[: i % len(names)]:
            results[name].append(functions[name](prompt, problem.id))
        line = "  ".join(f"{name} {results[name][-1].rate:.0f}" for name in names)
        print(f"{i + 1}/{len(problems)} {problem.id}: tokens/s {line}", flush=True)
        if results["stand"][-1].outputs != results["plain"][-1].outputs:
            raise SystemExit(f"{problem.id}: tokens differ between drafts and plain decoding")
    sequential = [
        with_threads(
            1,
            decode_ours,
            decoders["sequential"],
            render(problem, tokenizer, "chat"),
            problem.id,
            law=law,
            n=arguments.n,
            lockstep=1,
        )
        for problem in problems[: arguments.sequential]
    ]
    summary = summarise(results, decoders, sequential)
    print(json.dumps(summary, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(summary, indent=2))


def summarise(
    results: dict[str, list[Measurement]], decoders: dict[str, Decoder], sequential: list[Measurement]
) -> dict[str, object]:
    """Return all figures by name."""
    rates = {name: [m.rate for m in measurements] for name, measurements in results.items()}
    pairs = [pair for pair in _PAIRS if set(pair) <= set(rates)]
    totals = {
        name: sum(m.tokens for m in measurements) / sum(m.seconds for m in measurements)
        for name, measurements in results.items()
    }
    counters = {name: decoder.statistics() for name, decoder in decoders.items()}
    cost = decoders["stand"].cost_model
    return {
        "machine": f"{platform.machine()}, {n_threads()} threads, torch {torch.__version__}, float32, 1 node",
        "total_tokens_per_second": {name: round(total, 1) for name, total in totals.items()},
        "total_ratios": {f"{a} / {b}": round(totals[a] / totals[b], 3) for a, b in pairs},
        "median_tokens_per_second": {name: round(float(np.median(values)), 1) for name, values in rates.items()},
        "median_ratios": {f"{a} / {b}": [round(x, 3) for x in ratio_interval(rates[a], rates[b])] for a, b in pairs},
        "tau": {
            name: round(c["committed_tokens"] / c["verify_steps"], 3)
            for name, c in counters.items()
            if c["verify_steps"]
        },
        "tau_by_index_lockstep": _tau_by_index(results["stand"]),
        "tau_by_index_sequential": _tau_by_index(sequential),
        "milliseconds_per_pass": {
            name: {key[:-2]: round(1000 * c[key] / c["passes"], 2) for key in c if key.endswith("_s")}
            for name, c in counters.items()
            if c["passes"]
        },
        "cost_curve_ms": [(n, round(1000 * s, 1)) for n, s in cost.table()] if cost else [],
    }


def _tau_by_index(measurements: list[Measurement]) -> list[float]:
    if not measurements:
        return []
    tokens = np.array([[len(output) for output in m.outputs] for m in measurements], float)
    steps = np.array([m.steps for m in measurements], float)
    return [round(float(x), 2) for x in tokens.sum(0) / np.maximum(steps.sum(0), 1)]


if __name__ == "__main__":
    main()
