"""Draft heads and small language models for the toy target, and a stand-in for the engine that tells their drafter features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.toys import VOCABULARY_SIZE, toy_llama, toy_tokenizer
from tts_orch.drafters.causal_lm import CausalLM
from tts_orch.drafters.draft_heads import DraftHead, new_head
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.eagle_network import head_network
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.target_facts import TargetFacts, target_facts
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.engine.target import Target
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.records import IntArray, SamplingParams
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

PUBLISHED_LAYER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "vocab_size": 97,
    "max_position_embeddings": 1024,
}
"""What configurations of published heads for the toy target say about their layer."""


def toy_facts(dtype: torch.dtype = torch.float64) -> TargetFacts:
    """Return the facts of the Llama toy."""
    return target_facts(
        Target(toy_llama(dtype), toy_tokenizer(), numerics="fast", name="toy", weights_id="toy weights")
    )


def toy_head(
    facts: TargetFacts, seed: int = 0, *, architecture: str = "eagle", ids: Sequence[int] | None = None
) -> DraftHead:
    """Return a head with random weights whose laws are not flat; `ids` are the tokens that it may propose."""
    torch.manual_seed(seed)
    config = HeadConfig.for_target(facts.config, architecture=architecture, target_weights_id=facts.weights_id)
    head = new_head(config)
    with torch.no_grad():
        for name, weight in head.named_parameters():
            if weight.dim() > 1:
                weight.mul_(1.5)
            elif "norm" in name:
                weight.add_(0.1 * torch.randn(weight.shape))
    return head if ids is None else trimmed_head(head, draft_vocabulary(ids))


def draft_vocabulary(ids: Sequence[int]) -> DraftVocabulary:
    """Return a draft vocabulary of the toys' tokens."""
    return DraftVocabulary(np.array(ids, np.int64), VOCABULARY_SIZE)


SOME_IDS: Final = (*range(5, 60, 2), 70, 71, 72, 96)
"""Tokens of a trimmed head."""

HEAD_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "head": {},
    "trimmed head": {"ids": SOME_IDS},
    "eagle3": {"architecture": "eagle3"},
    "trimmed eagle3": {"architecture": "eagle3", "ids": SOME_IDS},
}


def toy_network(kind: str, facts: TargetFacts) -> HeadNetwork:
    """Return a random head (one of `HEAD_KINDS`), or a small language model (`lm`) that is not the target."""
    if kind in HEAD_KINDS:
        return head_network(toy_head(facts, **HEAD_KINDS[kind]), facts)
    return CausalLM(noisy_toy(0.2), VOCABULARY_SIZE)


def noisy_toy(noise: float, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """Return the Llama toy with a share of other random weights: a language model that often agrees with it."""
    model, other = toy_llama(dtype), toy_llama(dtype, seed=1)
    with torch.no_grad():
        for weight, its_noise in zip(model.parameters(), other.parameters(), strict=True):
            weight.add_(noise * (its_noise - weight))
    return model


class FakeEngine:
    """Tells a drafter what the engine would, for trajectories whose tokens the test commits.

    Args:
        drafter: is told.
        model: whose hidden states are the features.
    """

    def __init__(self, drafter: Drafter, model: PreTrainedModel) -> None:
        self._drafter = drafter
        self._model = model
        self.tokens: dict[str, list[int]] = {}
        self._n_told: dict[str, int] = {}

    def start(self, name: str, tokens: Sequence[int], law: SamplingParams, seed: int = 5) -> None:
        """Begin a trajectory."""
        self.tokens[name], self._n_told[name] = list(tokens), 0
        self._drafter.start(TrajectoryStart(name, np.array(tokens, np.int32), "scope", seed, law))

    def draft(self, names: Sequence[str], n_nodes: int) -> list[DraftTree]:
        """Tell features that are due, and ask for trees."""
        if self._drafter.feature_layers:
            for name in names:
                features = self.features(self.tokens[name])
                last = len(self.tokens[name]) - 1
                self._drafter.observe_features(name, self._n_told[name], features[self._n_told[name] : last])
                self._n_told[name] = last
        return self._drafter.slots(names).grow([n_nodes] * len(names))

    def commit(self, name: str, tree: DraftTree, accepted: Sequence[int], token: int) -> None:
        """Commit a path of a tree and a token behind it."""
        committed = np.array([*tree.token[list(accepted)], token], np.int32)
        self.tokens[name] += committed.tolist()
        no_laws = np.zeros((tree.n_nodes, 1), np.int32), np.zeros((tree.n_nodes, 1), np.float32)
        self._drafter.observe([VerifiedStep(name, tree, np.array(accepted, np.int32), committed, *no_laws)])

    def close(self, name: str) -> None:
        """End a trajectory."""
        self._drafter.close(name)

    def features(self, tokens: Sequence[int]) -> Tensor:
        """Return `[n, layers * d]` the hidden states at each position that the drafter wants."""
        with torch.inference_mode():
            states = self._model.base_model(torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states
            return torch.cat([states[layer][0] for layer in self._drafter.feature_layers], dim=-1)


def reference_laws(kind: str, engine: FakeEngine, facts: TargetFacts, tokens: Sequence[int], path: IntArray) -> Tensor:
    """Return `[V]` log-probabilities behind a path of drafts, everything computed anew and one token after the other."""
    text = [*tokens, *path.tolist()]
    with torch.inference_mode():
        if kind == "lm":
            return _language_model()(torch.tensor([text])).logits[0, -1].log_softmax(-1)  # type: ignore[no-any-return]
        head = _head(kind).to(facts.dtype)
        features = engine.features(tokens)[:-1]
        if isinstance(head, Eagle3Head):
            features = head.project(features)
        for n in range(len(tokens) - 1, len(text)):
            embeddings = facts.embedding[torch.tensor(text[1 : n + 1])]
            predicted, _ = head(embeddings[None], features[None], torch.arange(n)[None])
            features = torch.cat([features, predicted[0, -1:]])
        logits = head.logits(features[-1]) if isinstance(head, Eagle3Head) else facts.head(features[-1])
        if head.vocabulary is None:
            return logits.log_softmax(-1)
        ids = torch.from_numpy(head.vocabulary.ids)
        own = logits if isinstance(head, Eagle3Head) else logits[ids]
        return torch.full((VOCABULARY_SIZE,), -torch.inf, dtype=own.dtype).scatter(0, ids, own.log_softmax(-1))


@cache
def _language_model() -> PreTrainedModel:
    return noisy_toy(0.2)


@cache
def _head(kind: str) -> DraftHead:
    return toy_head(toy_facts(), **HEAD_KINDS[kind])


@cache
def trained_weights(architecture: str = "eagle") -> dict[str, Tensor]:
    """Return the weights of a head that has learned a little of the Llama toy's laws, in a second or two."""
    facts = toy_facts(torch.float32)
    head, model = toy_head(facts, architecture=architecture), toy_llama(torch.float32)
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        tokens = torch.randint(3, VOCABULARY_SIZE, (16, 24), generator=generator)
        with torch.no_grad():
            states = model.base_model(tokens, output_hidden_states=True).hidden_states
            wanted = facts.head(states[-1][:, 1:]).softmax(-1)
        features = torch.cat([states[layer][:, :-1] for layer in head.config.feature_layers], dim=-1)
        if isinstance(head, Eagle3Head):
            features = head.project(features)
        predicted, _ = head(facts.embedding[tokens[:, 1:]], features, torch.arange(23).expand(16, 23))
        logits = head.logits(predicted) if isinstance(head, Eagle3Head) else facts.head(predicted)
        loss = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: weight.detach() for name, weight in head.state_dict().items()}


def trained_network(facts: TargetFacts, architecture: str = "eagle", ids: Sequence[int] | None = None) -> HeadNetwork:
    """Return a head that has learned a little; `ids` are the tokens that it may propose."""
    head = toy_head(facts, architecture=architecture)
    head.load_state_dict(trained_weights(architecture))
    return head_network(head if ids is None else trimmed_head(head, draft_vocabulary(ids)), facts)
