"""What every drafter must bear, whatever it is."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from tts_orch.config import DraftingConfig, UntrainedName
from tts_orch.policies.drafting.draft_tree import Drafter, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.records import SamplingParams

NAMES = get_args(UntrainedName)
TEXT = np.tile(np.arange(5, dtype=np.int32), 4)


def _drafter(name: str) -> Drafter:
    config = DraftingConfig(drafter=name, table_entries=1024)
    drafter = make_drafter(config, vocabulary_size=32)
    assert drafter is not None
    drafter.start(TrajectoryStart("a", TEXT, "scope", 1, SamplingParams()))
    return drafter


def _verify(drafter: Drafter, token: int) -> None:
    (tree,) = drafter.slots(["a"]).grow([8])
    accepted = [child for child in tree.children[0] if tree.token[child] == token][:1]
    laws = np.full((tree.n_nodes, 1), token, np.int32), np.ones((tree.n_nodes, 1), np.float32)
    drafter.observe([VerifiedStep("a", tree, np.array(accepted, np.int32), np.array([token], np.int32), *laws)])


@pytest.mark.parametrize("name", NAMES)
def test_a_scope_may_close_under_a_live_trajectory(name: str) -> None:
    drafter = _drafter(name)
    _verify(drafter, 0)
    drafter.close_scope("scope")
    for token in (1, 2, 3):
        _verify(drafter, token)
    (tree,) = drafter.slots(["a"]).grow([8])
    assert tree.token[0] == 3
    drafter.close("a")


@pytest.mark.parametrize("name", NAMES)
def test_trees_are_tries_whose_first_nodes_are_the_smaller_trees(name: str) -> None:
    drafter = _drafter(name)
    for token in (0, 1, 2, 3, 4, 0):
        _verify(drafter, token)
    for n in (0, 1, 5, 20):
        (tree,) = drafter.slots(["a"]).grow([n])
        assert tree.n_nodes <= n + 1
        assert tree.token[0] == 0
        assert all(tree.parent[node] < node for node in range(1, tree.n_nodes))
        assert ((tree.kind >= 0) & (tree.kind < drafter.priors.size)).all()
        for children in tree.children:
            assert tree.slot[children].tolist() == list(range(len(children)))
            assert len(set(tree.token[children].tolist())) == len(children)
    assert ((drafter.priors >= 0) & (drafter.priors <= 1)).all()
