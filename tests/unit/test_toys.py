from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.strategies import draft_trees, sampling_params
from tests.toys import EOS_ID, TOY_MODELS, VOCABULARY_SIZE, save_toy, toy_llama, toy_tokenizer
from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import SamplingParams


@pytest.mark.parametrize("architecture", TOY_MODELS)
def test_laws_are_neither_flat_nor_one_hot(architecture: str) -> None:
    token_ids = torch.randint(VOCABULARY_SIZE, (4, 48), generator=torch.Generator().manual_seed(1))
    log_p = TOY_MODELS[architecture]()(token_ids).logits.log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    assert 1.5 < entropy.mean() < 3.5
    assert entropy.max() < math.log(VOCABULARY_SIZE)
    assert entropy.min() > 0.3


@pytest.mark.parametrize("architecture", TOY_MODELS)
def test_law_depends_on_the_whole_prefix_in_view(architecture: str) -> None:
    model = TOY_MODELS[architecture]()
    token_ids = torch.randint(3, VOCABULARY_SIZE, (1, 7), generator=torch.Generator().manual_seed(2))
    other = token_ids.clone()
    other[0, 0] = (other[0, 0] + 1) % VOCABULARY_SIZE
    laws = [model(ids).logits[0, -1].softmax(-1) for ids in (token_ids, other)]
    assert (laws[0] - laws[1]).abs().sum() > 0.02


def test_weights_follow_from_the_seed() -> None:
    weights, same, other = (toy_llama(seed=seed).lm_head.weight for seed in (0, 0, 1))
    assert torch.equal(weights, same)
    assert not torch.equal(weights, other)


def test_vocabulary_has_the_models_size() -> None:
    tokenizer = toy_tokenizer()
    assert len(tokenizer) == VOCABULARY_SIZE
    assert tokenizer.eos_token_id == EOS_ID


@pytest.mark.parametrize(
    "text", ["the sum is 10.\n\n#### 12", "\\box{x + 1}", "\u00e9t\u00e9 5 \u20ac", " the an ing "]
)
def test_text_survives_the_tokenizer(text: str) -> None:
    tokenizer = toy_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_step_delimiter_may_span_two_tokens() -> None:
    tokenizer = toy_tokenizer()
    token_ids = tokenizer.convert_tokens_to_ids([".\n", "\n1"])
    assert tokenizer.decode(token_ids) == ".\n\n1"
    assert "\n\n" not in (tokenizer.decode(token_id) for token_id in token_ids)


def test_saved_toy_is_a_target(tmp_path: Path) -> None:
    folder = save_toy(tmp_path / "toy")
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(model.lm_head.weight, toy_llama(torch.float32).lm_head.weight)
    assert AutoTokenizer.from_pretrained(folder).encode("the 10") == toy_tokenizer().encode("the 10")


@given(tree=draft_trees(max_nodes=8))
def test_drawn_trees_are_tries(tree: DraftTree) -> None:
    places = list(zip(tree.parent.tolist(), tree.token.tolist(), strict=True))[1:]
    assert len(set(places)) == len(places)
    assert all(0 <= parent < node for node, (parent, _) in enumerate(places, start=1))
    for siblings in tree.children:
        assert tree.slot[siblings].tolist() == list(range(len(siblings)))


@given(law=sampling_params())
def test_drawn_laws_are_possible(law: SamplingParams) -> None:
    assert law.max_new_tokens >= law.min_new_tokens
