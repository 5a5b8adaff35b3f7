"""Aligned passes against drafts that are really drafted, position by position; losses against laws over the whole vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.training.drafters.aligned_passes import aligned_mask, aligned_passes
from tts_orch.training.drafters.losses import LossWeights, draft_loss, log_normalisers, most_probable
from tts_orch.training.drafters.target_laws import Laws

CONFIG = HeadConfig(
    hidden_size=16, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=4, vocab_size=30
)
N = 7


@pytest.fixture
def head() -> EagleHead:
    torch.manual_seed(0)
    return EagleHead(CONFIG).double()


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    embeddings, features = torch.randn(2, 2, N, 16, generator=generator, dtype=torch.float64)
    return embeddings, features


def drafted(head: EagleHead, embeddings: Tensor, features: Tensor, end: int, depth: int) -> Tensor:
    """Return what a head predicts at position `end` as the last of a draft of `depth`, whose features it predicts itself."""
    root = end - depth + 1
    read = features[:, : root + 1]
    positions = torch.arange(end + 1)[None]
    for n in range(root + 1, end + 1):
        with torch.no_grad():
            predicted, _ = head(embeddings[:, :n], read, positions[:, :n])
        read = torch.cat([read, predicted[:, -1:]], dim=1)
    return head(embeddings[:, : end + 1], read, positions)[0][:, -1]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_row_reads_the_text_before_its_draft_and_its_draft(number: int) -> None:
    mask = aligned_mask(N, number, torch.device("cpu"))
    assert mask.shape == (N, number * N)
    for row in range(N):
        of_text = {(1, key) for key in range(row - number + 2)}
        of_draft = {(i, row - number + i) for i in range(2, number + 1) if row - number + i >= 0}
        read = {(key // N + 1, key % N) for key in range(number * N) if mask[row, key]}
        assert read == of_text | of_draft
        assert (number, row) in read


def test_every_pass_predicts_what_a_draft_of_its_depth_would(head: EagleHead) -> None:
    embeddings, features = inputs()
    for depth, predicted in enumerate(aligned_passes(head, embeddings, features, 4), start=1):
        for end in range(depth - 1, N):
            torch.testing.assert_close(predicted[:, end], drafted(head, embeddings, features, end, depth))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_gradient_flows_through_the_features_that_are_read(head: EagleHead, depth: int) -> None:
    embeddings, features = inputs()
    *_, predicted = aligned_passes(head, embeddings, features, depth)
    predicted[:, N - 1].square().sum().backward()
    gradients = [parameter.grad for parameter in head.parameters()]
    head.zero_grad()
    drafted(head, embeddings, features, N - 1, depth).square().sum().backward()
    for parameter, gradient in zip(head.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


# ---- losses


def laws_of(features: Tensor, output: Tensor) -> Laws:
    probs = torch.softmax(features @ output.T, dim=-1)
    top = probs.topk(10)
    return Laws(probs @ output, top.indices, top.values)


@pytest.mark.parametrize("weights", [LossWeights(1, 0, 0), LossWeights(0, 1, 0), LossWeights(0, 0, 1), (1, 0.1, 1)])
def test_the_loss_is_that_of_laws_over_the_whole_vocabulary(weights: tuple[float, float, float]) -> None:
    torch.manual_seed(2)
    targets, output = torch.randn(300, 16), torch.randn(30, 16)
    predicted = torch.randn(300, 16, requires_grad=True)
    loss = draft_loss(predicted, targets, laws_of(targets, output), output, LossWeights(*weights))
    (gradient,) = torch.autograd.grad(loss, predicted)
    naive = naive_loss(predicted, targets, output, *weights)
    torch.testing.assert_close(loss, naive)
    torch.testing.assert_close(gradient, torch.autograd.grad(naive, predicted)[0])


def naive_loss(predicted: Tensor, targets: Tensor, output: Tensor, features: float, law: float, top: float) -> Tensor:
    probs, log_probs = torch.softmax(targets @ output.T, -1), torch.log_softmax(predicted @ output.T, -1)
    terms = -probs * log_probs
    difference = (predicted - targets).abs()
    distance = torch.where(difference < 1, difference.square() / 2, difference - 0.5).mean(-1)
    chosen = probs >= probs.sort(descending=True).values[:, 9:10]
    return (features * distance + law * terms.sum(-1) + top * (terms * chosen).sum(-1)).sum()


def test_normalisers_have_the_gradient_of_logsumexp() -> None:
    torch.manual_seed(3)
    features, output = torch.randn(260, 16, requires_grad=True), 3 * torch.randn(30, 16)
    expected = torch.logsumexp(features @ output.T, dim=-1)
    weights = torch.rand(260)
    torch.testing.assert_close(log_normalisers(features, output), expected)
    (gradient,) = torch.autograd.grad((weights * log_normalisers(features, output)).sum(), features)
    torch.testing.assert_close(gradient, torch.autograd.grad((weights * expected).sum(), features)[0])
    assert torch.equal(most_probable(features.detach(), output), (features @ output.T).argmax(-1))
