"""A decoder whose drafts rest now and then: the same tokens, a drafter that keeps up, and books that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.joint_law import ERROR_RATE, joint_law, p_value
from tests.exactness.stand_drafter import new_stand
from tests.toys import EOS_ID, VOCABULARY_SIZE
from tts_orch.config import DraftingConfig
from tts_orch.engine.decoder import Decoder
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.relay import Relay
from tts_orch.policies.routing.registry import make_routing
from tts_orch.records import DecodeRequest, SamplingParams

_LAW = SamplingParams(temperature=0.8, max_new_tokens=30, logit_bias=((EOS_ID, -5.0),))


@dataclass
class Turns:
    """In the place of a `DraftBalance`: affords drafts and learning by turns, and keeps what is booked."""

    drafts: Sequence[bool] = (True,)
    learning: Sequence[bool] = (True,)
    booked: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def affords_drafts(self) -> bool:
        return self.drafts[len(self.booked) % len(self.drafts)]

    @property
    def affords_learning(self) -> bool:
        return self.learning[len(self.booked) % len(self.learning)]

    def book(
        self, n_roots: int, n_drafts: int, other_rows: int, n_gained: int, drafting: float, learning: float
    ) -> None:
        assert drafting >= 0
        assert learning >= 0
        assert not n_drafts or self.affords_drafts, "drafted at rest"
        self.booked.append((n_roots, n_drafts, other_rows, n_gained))


def _decoder(drafter: Drafter, turns: Turns, **settings: object) -> Decoder:
    decoder = new_decoder(toy_target(), drafter, **settings)
    assert decoder._link is not None
    assert decoder._link.balance is not None
    decoder._link.balance = turns  # type: ignore[assignment]
    return decoder


def _requests() -> list[DecodeRequest]:
    return [request(f"one-{i}", prompt(12 + 5 * (i % 2)), _LAW) for i in range(6)]


@pytest.mark.parametrize("name", ["stand", "token_recycling", "suffix_automaton", "suffix_tries", "prompt_lookup"])
def test_tokens_are_those_of_plain_decoding(name: str) -> None:
    turns = Turns((True, True, False), (True, False, False, True, False))
    drafter = make_drafter(DraftingConfig(drafter=name), vocabulary_size=VOCABULARY_SIZE)  # type: ignore[arg-type]
    expected = decode(new_decoder(toy_target()), _requests())
    outcomes = decode(_decoder(drafter, turns), _requests())
    assert {n: one.tokens for n, one in outcomes.items()} == {n: one.tokens for n, one in expected.items()}
    assert any(n_gained for *_, n_gained in turns.booked), "no draft was accepted"
    assert any(not n_drafts for _, n_drafts, _, _ in turns.booked), "drafting never rested"


def test_what_is_booked_is_what_was_decoded() -> None:
    turns = Turns()
    decoder = _decoder(new_stand(), turns, prefill_chunk=5)
    decode(decoder, _requests())
    roots, drafts, others, gained = np.array(turns.booked).sum(axis=0).tolist()
    counters = decoder.counters
    assert roots == counters.verify_steps
    assert drafts == counters.draft_nodes > 0
    assert gained == counters.committed_tokens - counters.verify_steps > 0
    assert 0 < others < counters.prefill_tokens  # passes of prompts alone are not booked


def test_nothing_is_drafted_or_learned_at_rest_and_the_drafter_keeps_up() -> None:
    stand = new_stand()
    decoder = _decoder(stand, Turns((False,), (False,)))
    requests = _requests()[:1]
    only = requests[0].candidate_id
    n_of_prompt = []

    def look(step: int) -> None:
        n_of_prompt.append(stand.table.size)
        for trajectory in decoder._admission.running:
            state = stand._trajectories[only]
            assert state.length == trajectory.length
            assert state.tail.tolist() == trajectory.token_ids[: -len(state.tail) - 1 : -1].tolist()

    decode(decoder, requests, before_step=look)
    assert decoder.counters.draft_nodes == 0
    assert len(set(n_of_prompt[1:])) == 1, "something was learned at rest"
    assert n_of_prompt[-1] > 0, "the prompt's text was not learned"


def test_learning_goes_on_while_drafting_rests() -> None:
    sizes = []
    for learns in (True, False):
        stand = new_stand()
        decode(_decoder(stand, Turns((False,), (learns,))), _requests())
        sizes.append(stand.table.size)
    assert sizes[0] > sizes[1]


def test_a_relayed_composition_rests_as_it_does_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its members rest one by one; whoever is relayed counts what it counts."""
    composed = ComposedDrafter({"stand": new_stand()}, make_routing(DraftingConfig(), ["stand"]))
    link = _decoder(Relay(composed), Turns((False,)))._link
    assert link is not None
    assert not link.is_resting
    assert link.statistics() == composed.statistics() != {}
    monkeypatch.setattr(ComposedDrafter, "is_resting", True)
    assert link.is_resting


def test_who_is_relayed_and_alone_rests_by_the_balance() -> None:
    link = _decoder(Relay(new_stand()), Turns((False,)))._link
    assert link is not None
    assert link.is_resting


def test_rejection_keeps_the_law_where_drafts_compete_and_rest() -> None:
    """Whether a pass drafts is decided before anything is drawn in it, so it cannot bias what is emitted."""
    law = SamplingParams(temperature=1.0, top_k=5, max_new_tokens=3, logit_bias=((EOS_ID, -1e9),))
    prompt_ids = prompt(10)
    drafter = make_drafter(DraftingConfig(verification="rejection"), vocabulary_size=VOCABULARY_SIZE)
    turns = Turns((True, True, False), (True, False))
    decoder = _decoder(drafter, turns, n_pages=160, max_batch=32, max_nodes=3, verification="rejection")
    requests = [request(str(i), prompt_ids, law, seed=i) for i in range(2000)]
    outcomes = decode(decoder, requests)
    assert decoder.counters.accepted_nodes > 400, "drafts hardly took part"
    samples = [tuple(outcomes[str(i)].tokens) for i in range(2000)]
    assert p_value(samples, joint_law(prompt_ids, law)) > ERROR_RATE
