"""Keyed drafts leave the law alone: joint laws against exact enumeration, and independence of samples that share a table.

The tests are on fixed seeds; a correct decoder would fail each with probability 1e-3 on another set of seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, toy_target
from tests.exactness.joint_law import ERROR_RATE, joint_law, p_value
from tests.toys import EOS_ID, VOCABULARY_SIZE
from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.records import DecodeRequest, IntArray, SamplingParams
from tts_orch.seeds import trajectory_seed


def _sample(name: str, prompt_ids: IntArray, law: SamplingParams, scopes: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the output of one trajectory a scope, in order of the scopes."""
    requests = [
        DecodeRequest(str(i), prompt_ids, len(prompt_ids), trajectory_seed(0, name, (i,)), law, scope)
        for i, scope in enumerate(scopes)
    ]
    drafter = make_drafter(DraftingConfig(drafter=name), vocabulary_size=VOCABULARY_SIZE)
    decoder = new_decoder(toy_target(), drafter, max_batch=32, n_pages=160)
    outcomes = decode(decoder, requests)
    if name != "none":
        assert decoder.counters.accepted_nodes > len(requests) / 5, "drafts hardly took part"
    return [tuple(outcomes[str(i)].tokens) for i in range(len(scopes))]


_THREE_TOKENS = SamplingParams(
    temperature=0.9, top_k=4, repetition_penalty=1.3, max_new_tokens=3, logit_bias=((EOS_ID, -1e9),)
)


@pytest.mark.parametrize("name", ["none", "stand"])
def test_three_tokens_have_the_enumerated_law(name: str) -> None:
    prompt_ids = prompt(12)
    samples = _sample(name, prompt_ids, _THREE_TOKENS, ["scope"] * 3000)
    joint = joint_law(prompt_ids, _THREE_TOKENS)
    assert len(joint) == 4**3
    assert p_value(samples, joint) > ERROR_RATE


def test_pairs_with_a_shared_table_are_independent() -> None:
    """The second sample of a pair drafts from what the first one taught; the pair's law must be the product law."""
    law = SamplingParams(temperature=1.0, top_k=3, max_new_tokens=2, logit_bias=((EOS_ID, -1e9),))
    prompt_ids, n_pairs = prompt(8), 2000
    scopes = [f"pair-{i}" for i in range(n_pairs)]
    samples = _sample("stand", prompt_ids, law, scopes + scopes)
    pairs = [first + second for first, second in zip(samples[:n_pairs], samples[n_pairs:], strict=True)]
    single = joint_law(prompt_ids, law)
    product = {a + b: single[a] * single[b] for a, b in itertools.product(single, single)}
    assert p_value(pairs, product) > ERROR_RATE


def test_the_test_sees_a_wrong_law() -> None:
    prompt_ids = prompt(12)
    joint = joint_law(prompt_ids, _THREE_TOKENS)
    cells, masses = list(joint), np.array(list(joint.values()))
    warped = masses**0.85
    drawn = np.random.default_rng(0).choice(len(cells), 3000, p=warped / warped.sum())
    assert p_value([cells[i] for i in drawn], joint) < ERROR_RATE
