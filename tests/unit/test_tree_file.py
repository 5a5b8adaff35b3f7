"""Files of learned trees: what is written is read, damage is one line that names file and field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tts_orch.config import LawConfig
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.tree_file import (
    DEFAULT_TREE,
    HeldOut,
    InitialTree,
    LearnedTree,
    TreeData,
    default_tree,
    read_learned_tree,
    read_tree,
    write_tree,
)

DATA = TreeData(problems="gsm8k_train.jsonl", sha256="ab", problem_ids=("gsm8k-0", "gsm8k-1"), n_trajectories=8)
TREE = LearnedTree(
    n_nodes=4,
    parents=(0, 1, 0, 2),
    slots=(0, 0, 1, 0),
    counts=(60, 40, 20, 8),
    verify_steps=100,
    verification="keyed",
    law=LawConfig(temperature=0.7),
    target="toy",
    weights_id="w",
    tokenizer_id="t",
    data=(DATA,),
    held_out=(HeldOut(data=DATA, verify_steps=90, tau=2.2, heuristic_tau=2.1),),
    initial_tree=InitialTree(acceptance=(0.6, 0.2), n_nodes=625, max_depth=20),
    command="tts-orch tree optimize run",
    package_version="0.1.0",
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree.json", TREE)
    assert read_learned_tree(tmp_path / "tree.json") == TREE
    shape = read_tree(tmp_path / "tree.json")
    assert shape.parent.tolist() == [-1, 0, 1, 0, 2]
    assert shape.slot.tolist() == [0, 0, 0, 1, 0]
    assert shape.depth.tolist() == [0, 1, 2, 1, 3]
    assert shape.value.tolist() == [1.0, 0.6, 0.4, 0.2, 0.08]
    assert shape.parent.dtype == shape.slot.dtype == shape.depth.dtype == np.int32


def test_a_prefix_of_the_columns_is_a_smaller_tree(tmp_path: Path) -> None:
    smaller = {name: getattr(TREE, name)[:2] for name in ("parents", "slots", "counts")}
    write_tree(tmp_path / "tree.json", TREE.model_copy(update={**smaller, "n_nodes": 2}))
    assert read_tree(tmp_path / "tree.json").parent.tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ({"format_version": 2}, "format_version is 2, not 1; give"),
        ({"parents": [0, 1, 0]}, "parents: 3 nodes, but n_nodes is 4; write"),
        ({"parents": [0, 2, 0, 2]}, "parents: node 2 comes before its parent 2; write"),
        ({"parents": [0, -1, 0, 2]}, "parents.1: "),
        ({"slots": [0, 0, 2, 0]}, "slots: node 3 has draw rank 2, but 1 earlier siblings; write"),
        ({"slots": [0, 0, 0, 0]}, "slots: node 3 has draw rank 0, but 1 earlier siblings; write"),
        ({"counts": [60, 61, 20, 8]}, "counts: node 2 was accepted 61 times, its parent 60 times; write"),
        ({"counts": [101, 40, 20, 8]}, "counts: node 1 was accepted 101 times, its parent 100 times; write"),
        ({"verify_steps": 0}, "verify_steps: "),
        ({"verification": "hopeful"}, "verification: "),
        ({"law": {"temperature": -1}}, "temperature: "),
        ({"colour": "red"}, "colour: unknown setting"),
    ],
)
def test_damage_is_one_line(tmp_path: Path, damage: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps({**TREE.model_dump(mode="json"), **damage}))
    with pytest.raises(ConfigError) as caught:
        read_tree(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert complaint in message
    assert message.endswith("`tts-orch tree optimize`")
    assert "\n" not in message


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text("{}"),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.mkdir(),
        lambda path: None,
    ],
)
def test_what_is_no_tree_file_is_refused(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    spoil(tmp_path / "tree.json")
    with pytest.raises(ConfigError, match=r"tree\.json: .*; give a file of `tts-orch tree optimize`$"):
        read_tree(tmp_path / "tree.json")


def test_the_default_tree_is_better_than_the_heuristic_one_where_it_was_not_learned() -> None:
    learned = read_learned_tree(DEFAULT_TREE)
    assert learned.n_nodes == 80
    assert {part.problems for part in learned.data} == {"gsm8k_train.jsonl.gz"}
    assert all(part.tau > part.heuristic_tau for part in learned.held_out)
    measured = {problem_id for part in learned.held_out for problem_id in part.data.problem_ids}
    assert measured.isdisjoint(*(part.problem_ids for part in learned.data))
    assert default_tree().parent.tolist() == [-1, *learned.parents]
