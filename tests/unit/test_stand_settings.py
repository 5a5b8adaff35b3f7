"""STAND's settings: what fills the table, how laws are stored, how candidates are drawn, which contexts may hit."""

from __future__ import annotations

import numpy as np
import pytest

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.law_rows import processed_rows
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_shape import heap_tree
from tts_orch.records import IntArray, SamplingParams

SHAPE = heap_tree([0.5, 0.2, 0.1], 30, 4)
WIDE = SamplingParams(temperature=1.0)
PROMPT = np.array([1, 2, 3], np.int32)


def _stand(law: SamplingParams = WIDE, **config: object) -> Stand:
    stand = Stand(DraftingConfig(table_entries=1 << 10, **config), SHAPE)
    stand.start(TrajectoryStart("a", PROMPT, "scope", 5, law))
    return stand


def _law(*ids: int) -> tuple[IntArray, np.ndarray]:
    """A law that gives the first id 0.8 and the second one 0.2."""
    return np.array([ids], np.int32), np.array([[0.8, 0.2]], np.float32)


def _verify(stand: Stand) -> None:
    """Commit 7 and 8 by a tree with a rejected child 9; laws name the node: 10s after the root, 20s after 7, 30s after 9."""
    tree = DraftTree.chain(3, [7, 9])
    tree.parent[2], tree.depth[2], tree.slot[2] = 0, 1, 1
    ids = np.array([[10, 11], [20, 21], [30, 31]], np.int32)
    probs = np.tile(np.array([[0.8, 0.2]], np.float32), (3, 1))
    if not stand.learns_from_rejected:
        ids[2], probs[2] = 0, 0
    stand.observe([VerifiedStep("a", tree, np.array([1], np.int32), np.array([7, 8], np.int32), ids, probs)])


def _known(stand: Stand, *context: int) -> list[int] | None:
    found = stand.table.lookup("scope", np.array(context, np.int32))
    return None if found is None else found[1].tolist()


def test_prompts_fill_the_table_unless_told_not_to() -> None:
    for source in ("text", "laws", "nothing"):
        stand = _stand(update_from_prefill=source)
        assert stand.learns_prompt_laws == (source == "laws")
        stand.observe_prompt("a", 0, *_law(4, 5))
        assert _known(stand, 1) == (None if source == "nothing" else [4, 5])


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("rejected", [True, False])
def test_nodes_fill_the_table_as_they_are_told(accepted: bool, rejected: bool) -> None:
    stand = _stand(update_from_accepted=accepted, update_from_rejected=rejected)
    assert stand.learns_from_rejected == rejected
    _verify(stand)
    assert _known(stand, 2, 3) == ([10, 11] if accepted else None)
    assert _known(stand, 3, 7) == ([20, 21] if accepted else None)
    assert _known(stand, 3, 9) == ([30, 31] if rejected else None)


def test_rejected_nodes_that_have_no_law_teach_nothing() -> None:
    stand = _stand(update_from_rejected=True)
    tree = DraftTree.chain(3, [9])
    ids, probs = np.array([[10, 11], [0, 0]], np.int32), np.array([[0.8, 0.2], [0, 0]], np.float32)
    stand.observe([VerifiedStep("a", tree, np.zeros(0, np.int32), np.array([7], np.int32), ids, probs)])
    assert _known(stand, 3) == [10, 11]
    assert _known(stand, 9) is None


def test_without_unigrams_a_single_token_is_no_context() -> None:
    for is_on in (True, False):
        stand = _stand(unigram=is_on)
        stand.observe_prompt("a", 0, *_law(4, 5))
        stand.start(TrajectoryStart("b", np.array([7, 1], np.int32), "scope", 5, WIDE))
        assert stand.slots(["b"]).grow([3])[0].n_nodes == (3 if is_on else 1)


def test_deterministic_candidates_come_by_probability() -> None:
    for seed in range(20):
        stand = Stand(DraftingConfig(table_entries=1 << 10, draft_sampling="deterministic"), SHAPE)
        stand.start(TrajectoryStart("a", PROMPT, "scope", seed, WIDE, is_keyed=False))
        stand.observe_prompt("a", 2, *_law(4, 5))
        tree = stand.slots(["a"]).grow([5])[0]
        assert tree.token[tree.children[0]].tolist() == [4, 5]
        assert tree.laws is None


def test_stochastic_candidates_come_in_either_order() -> None:
    first = set()
    for seed in range(40):
        stand = Stand(DraftingConfig(table_entries=1 << 10), SHAPE)
        stand.start(TrajectoryStart("a", PROMPT, "scope", seed, WIDE))
        stand.observe_prompt("a", 2, *_law(4, 5))
        first.add(int(stand.slots(["a"]).grow([2])[0].token[1]))
    assert first == {4, 5}


def test_a_processed_law_is_stored_as_processed_and_drafted_as_stored() -> None:
    law = SamplingParams(temperature=0.5)
    tables = [_stand(law, stored_law=stored) for stored in ("raw", "processed")]
    for stand in tables:
        stand.observe_prompt("a", 2, *_law(4, 5))
    raw, processed = (stand.table.lookup("scope", PROMPT) for stand in tables)
    assert raw is not None
    assert processed is not None
    assert raw[2] == pytest.approx([0.8, 0.2], abs=1e-4)
    assert processed[2] == pytest.approx([16 / 17, 1 / 17], abs=1e-4)
    trees = [stand.slots(["a"]).grow([5])[0] for stand in tables]
    drafted = [np.exp(tree.log_q[tree.children[0]]) for tree in trees]
    assert sorted(drafted[0]) == pytest.approx([1 / 17, 16 / 17], abs=1e-4)
    assert sorted(drafted[1]) == pytest.approx([1 / 17, 16 / 17], abs=1e-4)


@pytest.mark.parametrize(
    ("law", "wanted"),
    [
        (SamplingParams(), [0.5, 0.3, 0.2]),
        (SamplingParams(temperature=0), [1, 0, 0]),
        (SamplingParams(top_k=2), [0.625, 0.375, 0]),
        (SamplingParams(top_p=0.4), [1, 0, 0]),
        (SamplingParams(top_p=0.6), [0.625, 0.375, 0]),
        (SamplingParams(min_p=0.5), [0.625, 0.375, 0]),
        (SamplingParams(temperature=0.5), [25 / 38, 9 / 38, 4 / 38]),
    ],
)
def test_processed_rows(law: SamplingParams, wanted: list[float]) -> None:
    rows = processed_rows(np.array([[0.5, 0.3, 0.2], [0, 0, 0]], np.float32), law)
    assert rows.dtype == np.float32
    assert rows[0].tolist() == pytest.approx(wanted)
    assert rows[1].tolist() == [0, 0, 0]
