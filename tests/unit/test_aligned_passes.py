"""Aligned passes against drafts that are really drafted, position by position."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tts_orch.drafters.draft_heads import DraftHead, new_head
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.training.drafters.aligned_passes import aligned_mask, aligned_passes

N = 7


@pytest.fixture(params=["eagle", "eagle3"])
def head(request: pytest.FixtureRequest) -> DraftHead:
    torch.manual_seed(0)
    config = HeadConfig(
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        vocab_size=30,
        architecture=request.param,
        feature_layers=(-1,) if request.param == "eagle" else (0, 1, 2),
    )
    return new_head(config).double()


def inputs(head: DraftHead) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    embeddings, *states = torch.randn(4, 2, N, 16, generator=generator, dtype=torch.float64)
    return embeddings, torch.cat(states[: len(head.config.feature_layers)], dim=-1)


def drafted(head: DraftHead, embeddings: Tensor, features: Tensor, end: int, depth: int) -> Tensor:
    """Return what a head predicts at position `end` as the last of a draft of `depth`, whose features it predicts itself."""
    root = end - depth + 1
    read = (head.project(features) if isinstance(head, Eagle3Head) else features)[:, : root + 1]
    positions = torch.arange(end + 1)[None]
    for n in range(root + 1, end + 1):
        with torch.set_grad_enabled(isinstance(head, Eagle3Head)):
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


def test_every_pass_predicts_what_a_draft_of_its_depth_would(head: DraftHead) -> None:
    embeddings, features = inputs(head)
    for depth, predicted in enumerate(aligned_passes(head, embeddings, features, 4), start=1):
        for end in range(depth - 1, N):
            torch.testing.assert_close(predicted[:, end], drafted(head, embeddings, features, end, depth))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gradients_are_those_of_a_draft(head: DraftHead, depth: int) -> None:
    """For EAGLE-3 those of all its steps, else of the last one, which takes the features that it reads as they are."""
    embeddings, features = inputs(head)
    *_, predicted = aligned_passes(head, embeddings, features, depth)
    predicted[:, N - 1].square().sum().backward()
    gradients = [parameter.grad for parameter in head.parameters()]
    head.zero_grad()
    drafted(head, embeddings, features, N - 1, depth).square().sum().backward()
    for parameter, gradient in zip(head.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_draft_depends_on_the_target_before_its_root_alone(head: DraftHead) -> None:
    embeddings, features = inputs(head)
    features.requires_grad_(True)
    for depth, predicted in enumerate(aligned_passes(head, embeddings, features, 4), start=1):
        for end in range(depth, N):
            (gradient,) = torch.autograd.grad(predicted[0, end].sum(), features, retain_graph=True, allow_unused=True)
            root = end - depth + 1
            assert not gradient[0, root + 1 :].any()
            assert gradient[0, root].any() or depth > 1
            assert gradient[0, :root].any()
            assert not gradient[1].any()
