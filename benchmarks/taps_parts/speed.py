"""Tokens a second of real decoding, row by row in turn on each problem, with the node budget: only what pays is verified."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from noise import machine

from taps_parts.recordings import Workshop
from taps_parts.results import digests, identity, read_results
from tts_orch.bench.decoding import Decoded, decode, new_decoder, request
from tts_orch.bench.intervals import ratio_interval
from tts_orch.bench.workloads import Prompt
from tts_orch.config import DraftingConfig
from tts_orch.drafters.loading import load_drafter
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.errors import RunError
from tts_orch.json_lines import JsonLinesFile, JsonObject
from tts_orch.records import SamplingParams

__all__ = ["SPEEDS", "WAYS", "speed"]

SPEEDS: Final = "speed.jsonl"
_PLAIN: Final = "plain"
_HEADS: Final = ("math", "chat")


@dataclass(frozen=True, slots=True)
class _Speed:
    """A way to decode: settings of drafting, and the heads that it uses."""

    heads: tuple[str, ...]
    settings: Mapping[str, Any]


_SPEEDS: Final[Mapping[str, _Speed]] = {
    _PLAIN: _Speed((), {"drafter": "none"}),
    "plain again": _Speed((), {"drafter": "none"}),
    "math": _Speed(("math",), {"drafter": "neural"}),
    "chat": _Speed(("chat",), {"drafter": "neural"}),
    "mixed": _Speed(("mixed",), {"drafter": "neural"}),
    "averaged": _Speed(("averaged",), {"drafter": "neural"}),
    "entropy": _Speed(_HEADS, {"drafter": "neural", "routing": "entropy"}),
    "confidence": _Speed(_HEADS, {"drafter": "neural", "routing": "confidence"}),
    "first_steps": _Speed(_HEADS, {"drafter": "neural", "routing": "first_steps"}),
    "concatenated": _Speed(_HEADS, {"drafter": "neural", "routing": "concatenated"}),
    "merged": _Speed(_HEADS, {"drafter": "neural", "routing": "merged"}),
    "stand": _Speed((), {"drafter": "stand"}),
    "stand + routed": _Speed(_HEADS, {"drafter": "stand", "routing": "expected_tokens"}),
    "stand + merged": _Speed(_HEADS, {"drafter": "stand", "routing": "merged"}),
}


WAYS: Final = tuple(_SPEEDS)
"""To decode, by name."""


def speed(arguments: argparse.Namespace) -> None:
    """Tokens a second of heads, routings, STAND and both together, against plain decoding."""
    workshop, path = Workshop(arguments), arguments.out / SPEEDS
    done = {identity(result) for result in read_results(path)}
    results, costs = JsonLinesFile(path), workshop.target.measure_cost(arguments.batch)
    for loss, workload in product(arguments.losses, arguments.workloads):
        key = {"loss": loss, "workload": workload, **_measured_with(arguments, loss)}
        if identity(key) not in done:
            results.append({**key, **_measured(workshop, costs, loss, workload)})
    results.close()


def _measured_with(arguments: argparse.Namespace, loss: str) -> JsonObject:
    names = ("samples", "speed_problems", "speed_tokens", "speed_temperature", "depth", "speed_width")
    settings = {name: getattr(arguments, name) for name in ("target", "dtype", "batch", *names)}
    heads = dict.fromkeys(head for name in arguments.ways for head in _SPEEDS[name].heads)
    return {"settings": settings, "heads": digests(arguments.heads / loss, [*heads]), "compared": arguments.ways}


def _measured(workshop: Workshop, costs: CostModel, loss: str, workload: str) -> JsonObject:
    """Time all ways on one workload."""
    arguments = workshop.arguments
    law = SamplingParams(temperature=arguments.speed_temperature, max_new_tokens=arguments.speed_tokens)
    prompts = workshop.prompts(workload, arguments.speed_problems)
    compared = dict.fromkeys([_PLAIN, *arguments.ways])
    decoders = {name: _decoder(workshop, costs, arguments.heads / loss, _SPEEDS[name]) for name in compared}
    measured: dict[str, list[Decoded]] = {name: [] for name in decoders}
    for turn, prompt in enumerate([prompts[-1], *prompts]):  # the first turn compiles and touches memory
        names = [*decoders][turn % len(decoders) :] + [*decoders][: turn % len(decoders)]
        decoded = {name: _decoded(decoders[name], prompt, law, arguments) for name in names}
        if any(one.outputs != decoded[_PLAIN].outputs for one in decoded.values()):
            raise RunError(f"{prompt.problem_id}: tokens differ between drafters, which `bitwise` numerics rule out")
        if turn:
            for name, one in decoded.items():
                measured[name].append(one)
            print(f"{loss} {workload} {turn}/{len(prompts)}: {_rates(measured)}", flush=True)
    rows = {name: float(np.mean([n for one in values for n in one.pass_rows])) for name, values in measured.items()}
    target = workshop.target
    return {
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": f"{target.device}, {machine()}",
        "ways": {name: {**_figures(values, measured[_PLAIN]), "rows": rows[name]} for name, values in measured.items()},
        "tv_over_t1": {name: float(costs.seconds(n) / costs.seconds(1.0)) for name, n in rows.items()},
    }


def _decoder(workshop: Workshop, costs: CostModel, heads: Path, way: _Speed) -> Decoder:
    arguments = workshop.arguments
    size = {"draft_depth": arguments.depth, "draft_width": arguments.speed_width} if way.heads else {}
    drafters = {name: heads / name for name in way.heads}
    drafting = DraftingConfig(drafters=drafters, **size, **way.settings)
    drafter = load_drafter(drafting, workshop.target, is_shared=False)
    config = workshop.config.model_copy(update=drafting.model_dump())
    return new_decoder(workshop.target, drafter, config, arguments.batch, costs)


def _decoded(decoder: Decoder, prompt: Prompt, law: SamplingParams, arguments: argparse.Namespace) -> Decoded:
    wanted = [request(prompt, index, law, 0, prompt.problem_id) for index in range(arguments.samples)]
    decoded = decode(decoder, wanted, arguments.batch)
    decoder.close_scope(prompt.problem_id)
    return decoded


def _rates(measured: Mapping[str, Sequence[Decoded]]) -> str:
    return "  ".join(f"{name} {values[-1].rate:.0f}" for name, values in measured.items())


def _figures(values: Sequence[Decoded], plain: Sequence[Decoded]) -> JsonObject:
    n_tokens = sum(one.n_tokens for one in values)
    ratio = ratio_interval([one.rate for one in values], [one.rate for one in plain])
    return {
        "tokens_per_second": n_tokens / sum(one.seconds for one in values),
        "ratio": ratio._asdict(),
        "tau": n_tokens / sum(one.verify_steps for one in values),
    }
