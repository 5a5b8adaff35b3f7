"""How a learned tree is shown: a drawing for the terminal, and a table of what it is worth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table
from rich.tree import Tree

from tts_orch.policies.drafting.tree_file import LearnedTree, TreeData
from tts_orch.policies.drafting.tree_shape import TreeShape

__all__ = ["drawing", "summary"]


def summary(learned: LearnedTree) -> Table:
    """Return the levels of a tree, and its acceptance length tau beside that of the heuristic tree of its size."""
    levels = " ".join(map(str, np.bincount(learned.shape.depth)[1:]))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", title_style="")
    table.title = f"{learned.n_nodes} nodes, by level: {levels}"
    table.add_column(no_wrap=True)
    for name in ("problems", "trajectories", "tau", "heuristic", ""):
        table.add_column(name, justify="right")
    expected = learned.shape.value.sum()
    table.add_row("learned from", *_amount(learned.data), f"{expected:.3f}")
    for held_out in learned.held_out:
        gain = 100 * (held_out.tau / held_out.heuristic_tau - 1)
        taus = f"{held_out.tau:.3f}", f"{held_out.heuristic_tau:.3f}", f"{gain:+.1f} %"
        table.add_row(f"held out, {held_out.data.problems}", *_amount([held_out.data]), *taus)
    return table


def _amount(data: Sequence[TreeData]) -> tuple[str, str]:
    return str(sum(len(part.problem_ids) for part in data)), str(sum(part.n_trajectories for part in data))


def drawing(learned: LearnedTree) -> Tree:
    """Return the tree with the share of verify steps that accepted each node; an only child stands beside its parent."""
    shape = learned.shape
    children: list[list[int]] = [[] for _ in shape.parent]
    for node, parent in enumerate(shape.parent[1:].tolist(), start=1):
        children[parent].append(node)
    picture = Tree("draw rank, % of verify steps that accepted the node, the same of only children below it")
    _draw(picture, shape, children, 0)
    return picture


def _draw(branch: Tree, shape: TreeShape, children: Sequence[Sequence[int]], node: int) -> None:
    for child in children[node]:
        line = [child]
        while len(children[line[-1]]) == 1:
            line += children[line[-1]]
        shares = " ".join(f"{100 * shape.value[below]:.1f}" for below in line)
        _draw(branch.add(f"{shape.slot[child]}: {shares}"), shape, children, line[-1])
