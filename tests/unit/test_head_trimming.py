"""Heads that propose fewer tokens: the same laws, cut to these tokens and normalised."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.neural_toys import SOME_IDS, draft_vocabulary, toy_facts, toy_head
from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.draft_network import likeliest
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.eagle_network import head_network
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.errors import ConfigError
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

_ARCHITECTURES = ("eagle", "eagle3")


def _states(n: int = 4) -> Tensor:
    return torch.randn(n, 32, generator=torch.Generator().manual_seed(0)).double()


def _logits(head: DraftHead) -> Tensor:
    with torch.inference_mode():
        return head_network(head, toy_facts()).logits(_states())


@pytest.mark.parametrize("architecture", _ARCHITECTURES)
def test_columns_are_those_of_the_whole_head(architecture: str) -> None:
    whole = toy_head(toy_facts(), architecture=architecture)
    logits = _logits(whole)
    trimmed = trimmed_head(whole, draft_vocabulary(SOME_IDS))
    assert trimmed.config.draft_vocab_size == len(SOME_IDS)
    torch.testing.assert_close(_logits(trimmed), logits[:, list(SOME_IDS)])
    twice = trimmed_head(trimmed, draft_vocabulary(SOME_IDS[2:9]))
    torch.testing.assert_close(_logits(twice), logits[:, list(SOME_IDS[2:9])])


@pytest.mark.parametrize("architecture", _ARCHITECTURES)
def test_the_whole_head_stays_as_it_is(architecture: str) -> None:
    whole = toy_head(toy_facts(), architecture=architecture)
    before = _logits(whole).clone()
    trimmed = trimmed_head(whole, draft_vocabulary(SOME_IDS))
    with torch.no_grad():
        for weight in trimmed.parameters():
            weight.zero_()
    torch.testing.assert_close(_logits(whole), before)
    assert whole.vocabulary is None


@pytest.mark.parametrize("architecture", _ARCHITECTURES)
def test_proposals_are_tokens_of_the_target(architecture: str) -> None:
    whole = toy_head(toy_facts(), architecture=architecture)
    network = head_network(trimmed_head(whole, draft_vocabulary(SOME_IDS)), toy_facts())
    ids, log_q = likeliest(network, _states(), 5)
    law = _logits(whole)[:, list(SOME_IDS)].log_softmax(-1)
    for row, top in enumerate(law.topk(5).indices.tolist()):
        assert ids[row].tolist() == [SOME_IDS[column] for column in top]
        assert log_q[row].tolist() == pytest.approx(law[row, top].tolist(), abs=1e-5)


def test_a_vocabulary_may_be_smaller_than_a_law_that_is_asked_for() -> None:
    network = head_network(toy_head(toy_facts(), ids=(7, 9, 90)), toy_facts())
    assert sorted(likeliest(network, _states(1), 16)[0][0].tolist()) == [7, 9, 90]


def test_rows_that_a_head_does_not_have_are_refused() -> None:
    head = toy_head(toy_facts(), architecture="eagle3", ids=SOME_IDS)
    assert isinstance(head, Eagle3Head)
    with pytest.raises(ConfigError, match=rf"not among the {len(SOME_IDS)} of the head"):
        trimmed_head(head, draft_vocabulary((4, 5)))
    with pytest.raises(ConfigError, match="made for 98 tokens, but the head's target has 97"):
        trimmed_head(head, DraftVocabulary(draft_vocabulary((5,)).ids, 98))
