"""Files of learned draft trees: the tree, how it was counted, on what, and what it is worth on held-out problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from tts_orch.atomic_file import write_atomically
from tts_orch.config import LawConfig, Settings
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.tree_shape import TreeShape

__all__ = [
    "DEFAULT_TREE",
    "HeldOut",
    "InitialTree",
    "LearnedTree",
    "TreeData",
    "default_tree",
    "read_learned_tree",
    "read_tree",
    "write_tree",
]

DEFAULT_TREE: Final = Path(__file__).parent / "trees" / "default.json"
"""The learned tree that comes with the package."""

_FORMAT: Final = 1
_AGAIN: Final = "write it again with `tts-orch tree optimize`"
_ANOTHER: Final = "give a file of `tts-orch tree optimize`"
_Count = Annotated[int, Field(ge=0)]


class TreeData(Settings):
    """Trajectories of one run."""

    problems: str
    """Name of the problem file."""
    sha256: str
    """Digest of the problems used."""
    problem_ids: tuple[str, ...]
    """Their ids."""
    n_trajectories: _Count
    """Trajectories of all of them."""


class HeldOut(Settings):
    """What the tree is worth on problems that it was not learned from."""

    data: TreeData
    """The held-out problems."""
    verify_steps: _Count
    """Verify steps with the learned tree."""
    tau: float
    """Acceptance length with the learned tree."""
    heuristic_tau: float
    """Acceptance length with as many nodes of the heuristic tree."""


class InitialTree(Settings):
    """The heuristic tree that the learned one was cut out of."""

    acceptance: tuple[float, ...]
    """Acceptance by draw rank."""
    n_nodes: _Count
    """Nodes below the root."""
    max_depth: _Count
    """Deepest level allowed."""


class LearnedTree(Settings):
    """Content of a tree file; nodes below the root are numbered from 1, best first, so that a prefix is a smaller tree."""

    format_version: Literal[1] = _FORMAT
    n_nodes: _Count
    """Nodes below the root."""
    parents: tuple[_Count, ...]
    """Parent of each node, 0 for the root."""
    slots: tuple[_Count, ...]
    """Draw rank of each node among its siblings."""
    counts: tuple[_Count, ...]
    """Verify steps that accepted each node."""
    verify_steps: Annotated[int, Field(ge=1)]
    """Verify steps that were counted."""
    verification: Literal["keyed", "rejection"]
    """Verification it was counted under."""
    law: LawConfig
    """Sampling law of the counted trajectories."""
    target: str
    """Target model."""
    weights_id: str
    """Digest of its weights."""
    tokenizer_id: str
    """Digest of its tokenizer."""
    data: tuple[TreeData, ...]
    """What was counted."""
    held_out: tuple[HeldOut, ...]
    """What it is worth elsewhere."""
    initial_tree: InitialTree
    """Where the slots come from."""
    command: str
    """Command line that made the file."""
    package_version: str
    """Version of the package that made it."""

    @property
    def shape(self) -> TreeShape:
        """The tree; `value` is the share of verify steps that accepted the node."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return TreeShape(
            np.array([-1, *self.parents], np.int32),
            np.array([0, *self.slots], np.int32),
            np.array(depths, np.int32),
            np.array([self.verify_steps, *self.counts]) / self.verify_steps,
        )


def write_tree(path: Path, tree: LearnedTree) -> None:
    """Write a tree file.

    Raises:
        RunError: it cannot be written.
    """
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in tree.model_dump(mode="json").items())
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_tree(path: Path) -> TreeShape:
    """Return the tree of a file.

    Raises:
        ConfigError: the file cannot be read, or is no tree file; the message names the field.
    """
    return read_learned_tree(path).shape


def default_tree() -> TreeShape:
    """Return the learned tree that comes with the package."""
    return read_tree(DEFAULT_TREE)


def read_learned_tree(path: Path) -> LearnedTree:
    """Return all that a tree file says. Raises as `read_tree` does."""
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; {_ANOTHER}") from None
    except ValueError:
        raise ConfigError(f"{path}: not JSON; {_ANOTHER}") from None
    if not isinstance(values, dict) or "format_version" not in values:
        raise ConfigError(f"{path}: not a tree file; {_ANOTHER}")
    version = values["format_version"]
    if version != _FORMAT:
        raise ConfigError(f"{path}: format_version is {version}, not {_FORMAT}; {_ANOTHER}")
    try:
        tree = LearnedTree(**values)
        _check_order(tree)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; {_AGAIN}") from None
    return tree


def _check_order(tree: LearnedTree) -> None:
    """Refuse nodes that do not follow their parent and earlier siblings, or were accepted without their parent.

    Raises:
        ConfigError: names the field and the first such node.
    """
    columns = {"parents": tree.parents, "slots": tree.slots, "counts": tree.counts}
    for name, column in columns.items():
        if len(column) != tree.n_nodes:
            raise ConfigError(f"{name}: {len(column)} nodes, but n_nodes is {tree.n_nodes}")
    n_children, accepted = [0] * (tree.n_nodes + 1), (tree.verify_steps, *tree.counts)
    for node, (parent, slot, count) in enumerate(zip(*columns.values(), strict=True), start=1):
        if parent >= node:
            raise ConfigError(f"parents: node {node} comes before its parent {parent}")
        if slot != n_children[parent]:
            raise ConfigError(f"slots: node {node} has draw rank {slot}, but {n_children[parent]} earlier siblings")
        if count > accepted[parent]:
            raise ConfigError(f"counts: node {node} was accepted {count} times, its parent {accepted[parent]} times")
        n_children[parent] += 1
