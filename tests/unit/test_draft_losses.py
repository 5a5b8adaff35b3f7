"""Losses of draft heads against laws that are written down over all tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tts_orch.training.drafters.losses import feature_loss, law_loss, log_normalisers, most_probable
from tts_orch.training.drafters.soft_cross_entropy import soft_cross_entropy
from tts_orch.training.drafters.target_laws import laws_of


@pytest.mark.parametrize("weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0.1, 1)])
def test_the_loss_is_that_of_laws_over_the_whole_vocabulary(weights: tuple[float, float, float]) -> None:
    torch.manual_seed(2)
    targets, output = torch.randn(300, 16), torch.randn(30, 16)
    predicted = torch.randn(300, 16, requires_grad=True)
    features, law, top = weights
    loss = features * feature_loss(predicted, targets) + law_loss(predicted, laws_of(targets, output), output, law, top)
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


def own_laws(states: Tensor, rows: Tensor, targets: Tensor, output: Tensor, weights: Tensor) -> Tensor:
    probs = torch.softmax(targets @ output.T, -1)
    return -(weights[:, None, None] * probs * torch.log_softmax(states @ rows.T, -1)).sum()


@pytest.mark.parametrize("n", [300, 0])
def test_the_loss_of_an_own_lm_head_is_that_of_laws_over_its_tokens(n: int) -> None:
    torch.manual_seed(4)
    states, rows = torch.randn(3, n, 16, requires_grad=True), torch.randn(30, 16, requires_grad=True)
    others = torch.randn(n, 16), torch.randn(30, 16), 0.8 ** torch.arange(3.0)
    loss = soft_cross_entropy(states, rows, *others)
    gradients = torch.autograd.grad(2 * loss, (states, rows))
    naive = own_laws(states, rows, *others)
    torch.testing.assert_close(loss, naive)
    for gradient, expected in zip(gradients, torch.autograd.grad(2 * naive, (states, rows)), strict=True):
        torch.testing.assert_close(gradient, expected)
