"""Static trees that are compared with the learned one, written as tree files so that drafters read them like any other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tts_orch.config import LawConfig
from tts_orch.policies.drafting.tree_file import InitialTree, LearnedTree, write_tree
from tts_orch.policies.drafting.tree_shape import MAX_DEPTH, STAND_ACCEPTANCE, TreeShape, heap_tree

__all__ = ["equal_tree", "write_trees"]

_N_NODES: Final = 80
_STEPS: Final = 1_000_000  # counts of a made-up tree: its values in millionths
_VECTORS: Final = {
    "heuristic": STAND_ACCEPTANCE,
    "flat": (0.4, 0.2, 0.12, 0.08, 0.05, 0.04, 0.03, 0.02),
    "steep": (0.8, 0.08, 0.03, 0.015, 0.01, 0.006, 0.004, 0.003),
}


def write_trees(folder: Path) -> Mapping[str, Path]:
    """Write the heuristic trees and return their files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        name: write_shape(folder / f"{name}.json", heap_tree(vector, _N_NODES, MAX_DEPTH), vector)
        for name, vector in _VECTORS.items()
    }


def equal_tree(folder: Path, siblings: int, depth: int) -> Path:
    """Write the tree in which every node above the last level has the same number of children."""
    rate = 0.9 / siblings
    n_nodes = sum(siblings**level for level in range(1, depth + 1))
    folder.mkdir(parents=True, exist_ok=True)
    acceptance = (rate,) * siblings
    path = folder / f"siblings_{siblings}.json"
    return write_shape(path, heap_tree(acceptance, n_nodes, depth), acceptance)


def write_shape(path: Path, shape: TreeShape, acceptance: tuple[float, ...]) -> Path:
    """Write a tree that nobody counted."""
    tree = LearnedTree(
        n_nodes=len(shape.parent) - 1,
        parents=tuple(shape.parent[1:].tolist()),
        slots=tuple(shape.slot[1:].tolist()),
        counts=tuple((shape.value[1:] * _STEPS).astype(int).tolist()),
        verify_steps=_STEPS,
        verification="keyed",
        law=LawConfig(),
        target="any",
        weights_id="",
        tokenizer_id="",
        data=(),
        held_out=(),
        initial_tree=InitialTree(
            acceptance=acceptance, n_nodes=len(shape.parent) - 1, max_depth=int(shape.depth.max())
        ),
        command="tts-orch bench drafting",
        package_version="",
    )
    write_tree(path, tree)
    return path
