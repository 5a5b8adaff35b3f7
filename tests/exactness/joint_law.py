"""Joint laws of short outputs by enumeration with the stock model, samples of rejection mode, and chi-square of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from scipy.stats import chisquare

from tests.exactness.decoding import decode, new_decoder, toy_target
from tests.exactness.reference import processed_row
from tests.toys import EOS_ID, toy_llama
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.records import DecodeRequest, IntArray, SamplingParams
from tts_orch.seeds import trajectory_seed

ERROR_RATE = 1e-3
"""Tests are on fixed seeds; a correct decoder would fail each with this probability on another set of seeds."""
_FEWEST = 5.0
"""Cells with a smaller expectation are counted together."""

Law = Mapping[tuple[int, ...], float]


def joint_law(prompt_ids: IntArray, law: SamplingParams) -> Law:
    """Enumerate all outputs of `law.max_new_tokens` tokens with their probabilities."""
    model, joint = toy_llama(), {(): 1.0}
    for _ in range(law.max_new_tokens):
        contexts = [[*prompt_ids.tolist(), *output] for output in joint]
        logits = model(torch.tensor(contexts)).logits[:, -1]
        longer = {}
        for (output, mass), context, row in zip(joint.items(), contexts, logits, strict=True):
            probabilities = processed_row(row, context, len(prompt_ids), law, (EOS_ID,)).softmax(-1)
            longer |= {(*output, int(i)): mass * float(probabilities[i]) for i in probabilities.nonzero()[:, 0]}
        joint = longer
    return joint


def sample(
    drafter: Drafter,
    prompt_ids: IntArray,
    law: SamplingParams,
    scopes: Sequence[str],
    *,
    max_nodes: int = 12,
    node_budget: bool = False,
) -> list[tuple[int, ...]]:
    """Return the output of one trajectory a scope, in order of the scopes, decoded by rejection with drafts that matter."""
    requests = [
        DecodeRequest(str(i), prompt_ids, len(prompt_ids), trajectory_seed(0, "law", (i,)), law, scope)
        for i, scope in enumerate(scopes)
    ]
    decoder = new_decoder(
        toy_target(),
        drafter,
        n_pages=160,
        max_batch=32,
        max_nodes=max_nodes,
        node_budget=node_budget,
        verification="rejection",
    )
    outcomes = decode(decoder, requests)
    assert decoder.counters.accepted_nodes > len(requests) / 5, "drafts hardly took part"
    assert decoder.counters.verify_steps > 1.1 * len(requests), "hardly a trajectory took two verify steps"
    return [tuple(outcomes[str(i)].tokens) for i in range(len(scopes))]


def p_value(samples: Sequence[tuple[int, ...]], law: Law) -> float:
    """Return how likely samples of the law are to lie this far from it."""
    counts = Counter(samples)
    assert set(counts) <= set(law), "an output without probability"
    expected = {cell: mass * len(samples) for cell, mass in law.items()}
    kept = [cell for cell, number in expected.items() if number >= _FEWEST]
    observed = [counts[cell] for cell in kept]
    wanted = [expected[cell] for cell in kept]
    rest = len(samples) - sum(wanted)
    if rest > _FEWEST:
        observed.append(len(samples) - sum(observed))
        wanted.append(rest)
    scale = sum(observed) / sum(wanted)
    return float(chisquare(observed, [number * scale for number in wanted]).pvalue)
