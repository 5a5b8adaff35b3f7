"""Speed with and without drafts, problem by problem in turn: drafted, plain, and plain again for the band of chance.

The bound is what acceptance and the measured cost of passes allow: the cost of all plain passes over the cost of all
drafted passes, by the rows they really had and one cost curve, measured before any of them. For one trajectory that is
`tau * T1 / Tv`. The share of it that was reached says what drafting, verification and learning cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from tts_orch.bench.decoding import Decoded, decode, new_decoder, request
from tts_orch.bench.intervals import RatioInterval, is_slower, ratio_interval
from tts_orch.bench.methods import new_drafter
from tts_orch.bench.plan import TimingCell
from tts_orch.bench.workloads import Prompt
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target
from tts_orch.errors import RunError
from tts_orch.json_lines import JsonObject
from tts_orch.records import SamplingParams

__all__ = ["timing_row"]

DRAFTED: Final = "drafted"
PLAIN: Final = "plain"
AGAIN: Final = "plain again"
_GOLDEN: Final = 0.6180339887


@dataclass(frozen=True, slots=True)
class _Variant:
    decoder: Decoder
    is_warmed: bool


def timing_row(
    target: Target,
    config: EngineConfig,
    drafting: DraftingConfig,
    cell: TimingCell,
    prompts: Sequence[Prompt],
    law: SamplingParams,
    seed: int,
    report: Callable[[str], None],
) -> JsonObject:
    """Time one cell.

    Args:
        target: the model.
        config: of the decoders, drafting aside.
        drafting: what is timed against plain decoding.
        cell: batch, trajectories, warm-up.
        prompts: one a pair.
        law: sampling law, the cell's temperature in it.
        seed: of the run.
        report: told of every pair.

    Raises:
        RunError: drafted and plain tokens differ though numerics are bitwise.
    """
    costs = target.measure_cost(cell.batch)
    variants = _variants(target, config, drafting, cell.batch, costs)
    for variant in variants.values():  # compile, allocate, touch memory
        decode(variant.decoder, [request(prompts[-1], 0, law, seed + 1, "warm-up")], cell.batch)
        variant.decoder.close_scope("warm-up")
    before = variants[DRAFTED].decoder.statistics()
    measured = _measured(variants, cell, prompts, law, seed, report)
    times = _milliseconds(before, variants[DRAFTED].decoder.statistics())
    return {**asdict(cell), "label": cell.label, **_figures(measured, costs), "milliseconds_a_pass": times}


def _variants(
    target: Target, config: EngineConfig, drafting: DraftingConfig, batch: int, costs: CostModel
) -> dict[str, _Variant]:
    drafter = new_drafter(drafting, target.vocab_size)
    drafted = config.model_copy(update=drafting.model_dump())
    return {
        DRAFTED: _Variant(new_decoder(target, drafter, drafted, batch, costs), is_warmed=True),
        PLAIN: _Variant(new_decoder(target, None, config, batch), is_warmed=False),
        AGAIN: _Variant(new_decoder(target, None, config, batch), is_warmed=False),
    }


def _measured(
    variants: Mapping[str, _Variant],
    cell: TimingCell,
    prompts: Sequence[Prompt],
    law: SamplingParams,
    seed: int,
    report: Callable[[str], None],
) -> dict[str, list[Decoded]]:
    """Decode every problem with every variant, another one first each turn."""
    names, is_bitwise = list(variants), variants[PLAIN].decoder.target.numerics == "bitwise"
    measured: dict[str, list[Decoded]] = {name: [] for name in names}
    for turn, prompt in enumerate(prompts):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            measured[name].append(_timed(variants[name], prompt, law, cell, seed))
        if is_bitwise:
            _check_equal(prompt, measured)
        rates = "  ".join(f"{name} {values[-1].rate:.0f}" for name, values in measured.items())
        report(f"{cell.label}: {turn + 1}/{len(prompts)}  tokens/s {rates}")
    return measured


def _timed(variant: _Variant, prompt: Prompt, law: SamplingParams, cell: TimingCell, seed: int) -> Decoded:
    """Decode a problem; what comes before the clock starts is not part of what is returned."""
    scope = prompt.problem_id
    if cell.warm and variant.is_warmed:
        decode(variant.decoder, [request(prompt, index, law, seed, scope) for index in range(cell.warm)], cell.batch)
    elif cell.warm:  # plain decoding learns nothing, but finds the prompt computed too
        decode(variant.decoder, [request(prompt, 0, replace(law, max_new_tokens=1), seed, scope)], cell.batch)
    indices = range(cell.warm, cell.warm + cell.trajectories)
    requests = [request(prompt, index, _of_some_length(law, index), seed, scope) for index in indices]
    decoded = decode(variant.decoder, requests, cell.batch)
    variant.decoder.close_scope(scope)
    return decoded


def _of_some_length(law: SamplingParams, index: int) -> SamplingParams:
    """Return the law with a limit between half and one and a half times its own, evenly spread over the indices.

    Trajectories cut at one length would all end in the same plain pass, as they never do in earnest, and the passes in
    which drafted ones end one by one would count against drafts.
    """
    return replace(law, max_new_tokens=max(1, round(law.max_new_tokens * (0.5 + index * _GOLDEN % 1))))


def _check_equal(prompt: Prompt, measured: dict[str, list[Decoded]]) -> None:
    if any(values[-1].outputs != measured[PLAIN][-1].outputs for values in measured.values()):
        raise RunError(f"{prompt.problem_id}: tokens with and without drafts differ, which `bitwise` numerics rule out")


def _figures(measured: dict[str, list[Decoded]], costs: CostModel) -> JsonObject:
    rates = {name: [decoded.rate for decoded in values] for name, values in measured.items()}
    ratio = ratio_interval(rates[DRAFTED], rates[PLAIN])
    band = ratio_interval(rates[AGAIN], rates[PLAIN])
    estimates = {name: _cost(values, costs) for name, values in measured.items()}
    drafted, n_tokens = measured[DRAFTED], sum(decoded.n_tokens for decoded in measured[DRAFTED])
    rows = float(np.mean([rows for decoded in drafted for rows in decoded.pass_rows]))
    total = _seconds(measured[PLAIN]) / _seconds(drafted)
    bound = estimates[PLAIN] / estimates[DRAFTED]
    return {
        "pairs": len(drafted),
        "tokens": n_tokens,
        "tau": n_tokens / sum(decoded.verify_steps for decoded in drafted),
        "rows_a_pass": rows,
        "tv_over_t1": float(costs.seconds(rows) / costs.seconds(1.0)),
        "tokens_per_second": {name: n_tokens / _seconds(values) for name, values in measured.items()},
        "ratio": total,
        "median_ratio": _named(ratio),
        "a_a_band": _named(band),
        "is_slower": is_slower(ratio, band),
        "bound": bound,
        "share_of_bound": total / bound,
        "plain_share_of_cost": estimates[PLAIN] / _seconds(measured[PLAIN]),
        "cost_curve": costs.table(),
    }


def _seconds(values: Sequence[Decoded]) -> float:
    return sum(decoded.seconds for decoded in values)


def _cost(values: Sequence[Decoded], costs: CostModel) -> float:
    """Return what all passes cost by the measured curve, in seconds."""
    rows = np.array([rows for decoded in values for rows in decoded.pass_rows if rows], np.float64)
    return float(costs.seconds(rows).sum())


def _named(interval: RatioInterval) -> JsonObject:
    return interval._asdict()


def _milliseconds(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return how long each part of a pass took, on average, by the decoder's own clock."""
    passes = max(1.0, after["passes"] - before["passes"])
    return {name[:-2]: 1000 * (after[name] - before[name]) / passes for name in after if name.endswith("_s")}
