"""Drafters in a pool change no token, under rejection not the law, whatever gets lost between a decoder and them.

The statistical test is on fixed seeds; a correct decoder would fail it with probability 1e-3 on another set of seeds.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.joint_law import ERROR_RATE, joint_law, p_value, sample
from tests.exactness.reference import Outcome
from tests.neural_toys import toy_network, trained_network
from tests.pooled import LocalTransport, pooled
from tests.toys import EOS_ID
from tts_orch.config import DraftingConfig
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.pool_host import PoolHost
from tts_orch.drafters.target_facts import target_facts
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.routing.registry import make_routing
from tts_orch.records import SamplingParams

LAW = SamplingParams(temperature=0.8, max_new_tokens=30, logit_bias=((EOS_ID, -3.0),))
REQUESTS = [request(f"r{n}", prompt(n), LAW) for n in (2, 17, 40, 60, 64)]


@cache
def plain() -> dict[str, Outcome]:
    return decode(new_decoder(toy_target()), REQUESTS)


def neural(kind: str) -> NeuralDrafter:
    facts = target_facts(toy_target())
    network = trained_network(facts) if kind == "head" else toy_network("lm", facts)
    return NeuralDrafter(network, DraftingConfig(draft_depth=3, draft_width=4))


class Pool:
    """A pool with what may happen to it, named by its faults."""

    def __init__(self, kind: str, fault: str) -> None:
        self.kind, self.fault = kind, fault
        self.host = PoolHost({"math": neural(kind)}, max_trajectories=2 if fault == "forgetful" else 64)
        self.transport = LocalTransport(self.host, lambda number: fault == "lost replies" and number % 3 == 0)

    def before_step(self, step: int) -> None:
        if self.fault == "dead for a while":
            self.transport.host = None if 4 <= step < 9 else self.host
        elif self.fault == "replaced" and step % 6 == 5:
            self.host.put("math", neural(self.kind))


@pytest.mark.parametrize(
    ("kind", "fault", "overlap"),
    [
        ("head", "", False),
        ("head", "", True),
        ("head", "forgetful", False),
        ("head", "lost replies", True),
        ("head", "dead for a while", False),
        ("lm", "replaced", True),
    ],
)
def test_tokens_are_those_of_plain_decoding(kind: str, fault: str, overlap: bool) -> None:
    pool = Pool(kind, fault)
    settings = {"drafters": {"math": "."}, "drafter_placement": "pooled", "draft_overlap": overlap}
    decoder = new_decoder(toy_target(), pooled(pool.transport), n_pages=5, max_batch=4, **settings)
    assert decode(decoder, REQUESTS, pool.before_step) == plain()
    assert decoder.counters.accepted_nodes > 10, "drafts hardly took part"
    assert (decoder.statistics()["pool_failures"] > 0) == (fault in ("lost replies", "dead for a while"))


def test_three_tokens_have_the_enumerated_law_under_rejection() -> None:
    law = SamplingParams(temperature=0.7, top_k=4, max_new_tokens=3, logit_bias=((EOS_ID, -1e9),))
    prompt_ids = prompt(12, seed=3)
    samples = sample(pooled(Pool("head", "lost replies").transport), prompt_ids, law, ["scope"] * 800)
    assert p_value(samples, joint_law(prompt_ids, law)) > ERROR_RATE


def test_pooled_and_local_drafters_draft_together() -> None:
    pool = Pool("lm", "")
    config = DraftingConfig(drafter="prompt_lookup", drafters={"math": "."}, routing="merged")
    members: dict[str, Drafter] = {"prompt_lookup": PromptLookup(), "math": pooled(pool.transport)}
    decoder = new_decoder(toy_target(), ComposedDrafter(members, make_routing(config, list(members))))
    assert decode(decoder, REQUESTS) == plain()
    assert decoder.counters.accepted_nodes > 10
    assert decoder.statistics()["pool_requests"] > 0
