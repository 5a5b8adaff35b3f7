"""Training and judging heads that may propose some tokens only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.head_toys import frozen_toy, new_head, sequence, some_tokens
from tests.toys import VOCABULARY_SIZE
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.errors import ConfigError
from tts_orch.training.drafters.aligned_passes import aligned_passes
from tts_orch.training.drafters.batch_loss import batch_loss
from tts_orch.training.drafters.batches import TrainingBatch, assemble
from tts_orch.training.drafters.draft_accuracy import judged_head
from tts_orch.training.drafters.feature_shards import write_missing
from tts_orch.training.drafters.first_weights import first_head
from tts_orch.training.drafters.settings import DraftHeadSettings
from tts_orch.training.drafters.target_ends import TargetEnds, target_ends
from tts_orch.training.drafters.target_laws import FrozenTarget
from tts_orch.training.drafters.training_texts import TrainingTexts, texts_of
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

DEVICE = torch.device("cpu")


@pytest.fixture(scope="module")
def target() -> FrozenTarget:
    return frozen_toy()


def toy_texts(target: FrozenTarget, folder: Path, layers: tuple[int, ...]) -> TrainingTexts:
    shards, texts, _ = texts_of([[sequence(3, 9, seed) for seed in range(6)]], folder, layers)
    write_missing(shards, target, lambda _: None)
    return texts


def ends_of(target: FrozenTarget, vocabulary: DraftVocabulary | None) -> TargetEnds:
    return target_ends(target, vocabulary, torch.float32)


def one_batch(texts: TrainingTexts) -> TrainingBatch:
    return assemble([texts.read(number) for number in range(6)], DEVICE)


def test_ends_have_the_rows_of_the_tokens_that_may_be_proposed(target: FrozenTarget) -> None:
    some = some_tokens()
    ends = ends_of(target, some)
    assert torch.equal(ends.output, target.output[torch.from_numpy(some.ids)])
    assert ends.is_trimmed
    assert not ends_of(target, None).is_trimmed
    for token, column in enumerate(ends.columns.tolist()):
        assert some.ids[column] == token if column >= 0 else token not in some.ids
    with pytest.raises(ConfigError, match="none of the target's"):
        ends_of(target, DraftVocabulary(np.array([VOCABULARY_SIZE]), VOCABULARY_SIZE + 1))


def naive_cross_entropy(logits: Tensor, batch: TrainingBatch, output: Tensor, ids: Tensor) -> Tensor:
    """Return the cross-entropy over some tokens where the target's most probable one is among them, summed."""
    target_logits = batch.states @ output.T
    is_inside = torch.isin(target_logits.argmax(-1), ids)
    assert 0 < is_inside.sum() < len(is_inside)
    probs = torch.softmax(target_logits[:, ids], -1)
    return -(probs * torch.log_softmax(logits, -1)).sum(-1)[is_inside].sum()


@pytest.mark.parametrize("loss", ["eagle2", "eagle3"])
def test_laws_are_those_over_the_vocabulary_where_it_has_the_likeliest_token(
    loss: str, target: FrozenTarget, tmp_path: Path
) -> None:
    some = some_tokens()
    ids = torch.from_numpy(some.ids)
    head = new_head(0, "eagle3" if loss == "eagle3" else "eagle", some)
    batch, ends = one_batch(toy_texts(target, tmp_path, head.config.feature_layers)), ends_of(target, some)
    weights = {"feature_weight": 0, "law_weight": 1} if loss == "eagle2" else {"step_decay": 0.5}
    settings = DraftHeadSettings(loss=loss, **weights)
    embeddings = ends.embedding[batch.token_ids]
    expected = torch.zeros(())
    for number, states in enumerate(aligned_passes(head, embeddings, batch.features, settings.n_passes)):
        read = states.flatten(0, 1)[batch.rows]
        logits = head.logits(read) if isinstance(head, Eagle3Head) else read @ target.output[ids].T
        expected = expected + 0.5**number * naive_cross_entropy(logits, batch, target.output, ids)
    loss_of_batch = batch_loss(head, batch, ends, settings)
    torch.testing.assert_close(loss_of_batch, expected, rtol=1e-3, atol=1e-2)
    loss_of_batch.backward()
    gradients = [parameter.grad for parameter in head.parameters()]
    head.zero_grad()
    expected.backward()
    for parameter, gradient in zip(head.parameters(), gradients, strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("loss", ["eagle2", "hass", "eagle3"])
def test_texts_of_other_tokens_teach_no_laws(loss: str, target: FrozenTarget, tmp_path: Path) -> None:
    layers = new_head(0, "eagle3" if loss == "eagle3" else "eagle").config.feature_layers
    batch = one_batch(toy_texts(target, tmp_path, layers))
    others = np.setdiff1d(np.arange(VOCABULARY_SIZE), batch.laws.top_ids[:, 0].numpy())
    vocabulary = DraftVocabulary(others, VOCABULARY_SIZE)
    head = new_head(0, "eagle3" if loss == "eagle3" else "eagle", vocabulary)
    weights = {} if loss == "eagle3" else {"feature_weight": 0.0}
    value = batch_loss(head, batch, ends_of(target, vocabulary), DraftHeadSettings(loss=loss, **weights))
    assert value == 0
    value.backward()
    assert all(not parameter.grad.any() for parameter in head.parameters() if parameter.grad is not None)


def test_a_likeliest_token_that_may_not_be_proposed_is_never_right(target: FrozenTarget, tmp_path: Path) -> None:
    """A head that is the target itself would be right everywhere."""
    texts = toy_texts(target, tmp_path, (-1,))
    tops = torch.cat([texts.read(number).laws.top_ids[:, 0] for number in range(6)])
    head = new_head()
    whole = judged_head(head, texts, ends_of(target, None), 100).acceptance[0]
    guessed = DraftVocabulary(np.unique(tops.numpy()), VOCABULARY_SIZE)
    assert judged_head(new_head(0, "eagle", guessed), texts, ends_of(target, guessed), 100).acceptance[0] >= whole
    others = DraftVocabulary(np.setdiff1d(np.arange(VOCABULARY_SIZE), guessed.ids), VOCABULARY_SIZE)
    assert judged_head(new_head(0, "eagle", others), texts, ends_of(target, others), 100).tau == 1


def test_a_head_of_eagle3_begins_with_rows_of_the_target(target: FrozenTarget) -> None:
    some = some_tokens()
    ends = ends_of(target, some)
    shape = replace(new_head(0, "eagle3").config, draft_vocab_size=some.size)
    first, again, other = (first_head(shape, some, ends, seed) for seed in (0, 0, 1))
    assert isinstance(first, Eagle3Head)
    assert torch.equal(first.lm_head.weight, ends.output)
    assert torch.equal(first.fc.weight, again.fc.weight)
    assert not torch.equal(first.fc.weight, other.fc.weight)
