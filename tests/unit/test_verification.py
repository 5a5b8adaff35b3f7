"""The tree walk against following the target token by token, without any tree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import draft_trees, sampling_params
from tts_orch.engine.laws import TrajectoryLaw, draw, process
from tts_orch.engine.verification import Walk, verify
from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import SamplingParams

_VOCABULARY = 5
_EOS = 4


def _walk(tree: DraftTree, params: SamplingParams, seed: int, first_row: int) -> Walk:
    law = TrajectoryLaw(params, (_EOS,), tree.token[:1].tolist(), _VOCABULARY)
    return Walk(tree, law, seed, position=10 + seed, first_row=first_row)


def _draw_one(row: torch.Tensor, walk: Walk, path: list[int]) -> int:
    processed = process(row[None], [walk.law], [path])
    place = np.array([walk.position + 1 + len(path)], np.int64)
    return int(draw(processed, np.array([walk.seed], np.uint64), place, np.array([walk.law.is_greedy]))[0])


def _follow(walk: Walk, logits: torch.Tensor) -> tuple[list[int], list[int]]:
    """Return the (nodes, tokens) that one draw after another visits."""
    nodes, tokens = [0], []
    while True:
        tokens.append(_draw_one(logits[walk.first_row + nodes[-1]], walk, tokens[:]))
        fitting = [
            node for node in range(1, walk.tree.n_nodes) if walk.tree.token[walk.tree.path(node)].tolist() == tokens
        ]
        if not fitting:
            return nodes, tokens
        nodes += fitting


@settings(max_examples=100, deadline=None)
@given(
    trees=st.lists(draft_trees(_VOCABULARY, max_nodes=20), min_size=1, max_size=4),
    params=st.lists(sampling_params(_VOCABULARY), min_size=4, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_walk_visits_what_single_draws_visit(trees: list[DraftTree], params: list[SamplingParams], seed: int) -> None:
    starts = np.cumsum([0, *(tree.n_nodes for tree in trees)]).tolist()
    logits = torch.randn(starts[-1], _VOCABULARY, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    walks = [_walk(tree, params[i], i, starts[i]) for i, tree in enumerate(trees)]
    verify(walks, logits)
    for walk in walks:
        assert (walk.nodes, walk.tokens) == _follow(walk, logits)


def test_only_the_path_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []

    def counting(logits: torch.Tensor, *rest: object) -> torch.Tensor:
        judged.append(len(logits))
        return process(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("tts_orch.engine.verification.process", counting)
    logits = torch.full((4, _VOCABULARY), -50.0, dtype=torch.float64)
    logits[[0, 1, 2, 3], [1, 2, 3, 0]] = 50.0
    walks = [_walk(DraftTree.chain(0, [1, 2, 0]), SamplingParams(), 0, first_row=0)]
    verify(walks, logits)
    assert walks[0].tokens == [1, 2, 3]
    assert judged == [1, 1, 1]


def test_a_tree_without_drafts_commits_one_token() -> None:
    logits = torch.zeros(1, _VOCABULARY, dtype=torch.float64)
    walk = _walk(DraftTree.root_only(3), SamplingParams(), 1, first_row=0)
    verify([walk], logits)
    assert walk.nodes == [0]
    assert len(walk.tokens) == 1


def test_a_walk_ends_where_nothing_can_be_drawn() -> None:
    logits = torch.full((6, _VOCABULARY), -50.0, dtype=torch.float64)
    logits[[0, 1, 3, 4, 5], [1, 2, 1, 2, 3]] = 50.0
    logits[1] = torch.nan
    walks = [_walk(DraftTree.chain(0, [1, 2]), SamplingParams(), i, first_row=3 * i) for i in range(2)]
    verify(walks, logits)
    assert (walks[0].nodes, walks[0].tokens) == ([0, 1], [1, -1])
    assert (walks[1].nodes, walks[1].tokens) == ([0, 1, 2], [1, 2, 3])
