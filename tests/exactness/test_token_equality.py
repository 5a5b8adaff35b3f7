"""Our decoder equals the plain one token for token, whatever drafts, batch, law and interruption.

Every pair of levels of two factors meets in at least one case.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest

from tests.exactness.decoding import Stepped, decode, decode_with_abort, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import AdversarialDrafter, RandomDrafter
from tests.exactness.reference import Outcome, decode_plainly
from tests.exactness.workers import Workers
from tests.toys import EOS_ID, TOY_MODELS, VOCABULARY_SIZE
from tts_orch.config import DraftingConfig
from tts_orch.engine.decoder import Decoder
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.records import ConfidenceCut, DecodeRequest, FinishReason, SamplingParams, StepRule

_FACTORS: Mapping[str, Sequence[object]] = {
    "architecture": ("llama", "qwen2", "gemma2", "mistral"),
    "drafter": ("none", "prompt_lookup", "stand", "random", "adversarial"),
    "max_batch": (1, 3, 8),
    "law": ("greedy", "nucleus", "raw", "mixed"),
    "is_resumed": (False, True),
    "max_nodes": (5, 24, 80),
    "workers": (1, 2),
    "ending": ("solution", "step"),
}
_LENGTHS = (1, 2, 5, 9, 17, 30, 64, 71)
"""Prompt lengths of the eight trajectories of every case."""
_NEW_TOKENS = 20
_STEP = StepRule(("\n", "e", " the"), min_tokens=2, max_tokens=10, confidence=ConfidenceCut(window=4, least=3.6))
_LAWS = {
    "greedy": {"temperature": 0.0},
    "nucleus": {"temperature": 0.6, "top_p": 0.95},
    "raw": {"temperature": 1.0},
}
_EXTRAS: tuple[dict[str, object], ...] = (
    {},
    {"repetition_penalty": 1.3, "stop_strings": ("a", " the")},
    {"presence_penalty": 0.5, "frequency_penalty": 0.3, "stop_ids": (11, 12, 13)},
    {"min_p": 0.05, "logit_bias": ((EOS_ID, 3.0), (20, -4.0)), "min_new_tokens": 6},
    {"top_k": 5, "max_new_tokens": 7},
)


def _pairwise(factors: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Return cases in which all pairs of levels occur: always the first of those that cover most new pairs."""
    cases = [dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())]
    pairs = [set(itertools.combinations(case.items(), 2)) for case in cases]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(cases)), key=lambda i: len(pairs[i] & missing))
        missing -= pairs[best]
        chosen.append(cases[best])
    return chosen


@cache
def _requests(law: str, ending: str = "solution") -> list[DecodeRequest]:
    requests = []
    for i, n_tokens in enumerate(_LENGTHS):
        shape = _LAWS[law] if law != "mixed" else list(_LAWS.values())[i % 3]
        settings = {"max_new_tokens": _NEW_TOKENS, **shape, **_EXTRAS[i % len(_EXTRAS)]}
        one = request(f"{law}-{i}", prompt(n_tokens), SamplingParams(**settings))  # type: ignore[arg-type]
        requests.append(replace(one, step=_STEP if ending == "step" else None))
    return requests


@cache
def _expected(architecture: str, law: str, ending: str = "solution") -> dict[str, Outcome]:
    model, target = TOY_MODELS[architecture](), toy_target(architecture)
    return {one.candidate_id: decode_plainly(model, one, (EOS_ID,), target.decode) for one in _requests(law, ending)}


def _drafter(name: str, architecture: str, law: str) -> Drafter | None:
    if name == "random":
        return RandomDrafter(VOCABULARY_SIZE, (EOS_ID, 11, 12))
    if name == "adversarial":
        expected = _expected(architecture, law)
        whole = {
            one.candidate_id: [*one.token_ids.tolist(), *expected[one.candidate_id].tokens] for one in _requests(law)
        }
        return AdversarialDrafter(whole, VOCABULARY_SIZE)
    return make_drafter(DraftingConfig(drafter=name), vocabulary_size=VOCABULARY_SIZE, is_shared=True)


@pytest.mark.parametrize("case", _pairwise(_FACTORS), ids=lambda case: "-".join(map(str, case.values())))
def test_tokens_equal_plain_decoding(case: dict[str, object]) -> None:
    architecture, law, ending = str(case["architecture"]), str(case["law"]), str(case["ending"])
    target, requests = toy_target(architecture), _requests(law, ending)
    expected = _expected(architecture, law, ending)

    def make_decoder() -> Decoder:
        drafter = _drafter(str(case["drafter"]), architecture, law)
        return new_decoder(target, drafter, max_batch=case["max_batch"], max_nodes=case["max_nodes"])

    def make_workers() -> Stepped:
        return make_decoder() if case["workers"] == 1 else Workers([make_decoder(), make_decoder()])

    if case["is_resumed"]:
        outcomes = decode_with_abort(make_workers, requests, abort_after=5)
    else:
        outcomes = decode(make_workers(), requests)
    for name, outcome in outcomes.items():
        assert (outcome.tokens, outcome.reason) == (expected[name].tokens, expected[name].reason), name
        for values, wanted in (
            (outcome.log_probs, expected[name].log_probs),
            (outcome.confidences, expected[name].confidences),
            (outcome.self_certainties, expected[name].self_certainties),
        ):
            assert values == pytest.approx(wanted, abs=1e-4)


def test_workers_learn_from_each_other() -> None:
    """In the cases above statistics must really travel, or two workers would be twice one."""
    decoders = [new_decoder(toy_target(), _drafter("stand", "llama", "raw"), max_batch=2) for _ in range(2)]
    workers = Workers(decoders)
    decode(workers, _requests("raw"))
    merged = [replica.statistics().merged_contexts for replica in workers.replicas]
    assert len(merged) == 2
    assert min(merged) > 20
    assert all(decoder.counters.committed_tokens > 20 for decoder in decoders)


def test_cases_meet_every_pair_of_levels() -> None:
    cases = _pairwise(_FACTORS)
    for (first, left), (second, right) in itertools.combinations(_FACTORS.items(), 2):
        for pair in itertools.product(left, right):
            assert any((case[first], case[second]) == pair for case in cases), (first, second, pair)


@pytest.mark.parametrize("law", [*_LAWS, "mixed"])
def test_trajectories_end_for_different_reasons(law: str) -> None:
    """The cases above must meet more than the length limit."""
    reasons = {outcome.reason for outcome in _expected("llama", law).values()}
    assert len(reasons) >= 2


def test_steps_end_for_every_reason_of_theirs() -> None:
    reasons = {outcome.reason for law in _LAWS for outcome in _expected("llama", law, "step").values()}
    assert reasons >= {FinishReason.STEP, FinishReason.STEP_LENGTH, FinishReason.LOW_CONFIDENCE}
