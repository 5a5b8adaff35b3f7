"""Grows the dynamic trees of a batch on a network, a level at a time: rows of the best nodes in, their candidates out."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts_orch.drafters.draft_network import HeadNetwork, likeliest
from tts_orch.drafters.level_seconds import LevelSeconds
from tts_orch.drafters.padded_texts import PaddedTexts
from tts_orch.policies.drafting.dynamic_tree import DynamicTrees
from tts_orch.policies.drafting.law_candidates import Candidates
from tts_orch.records import FloatArray, IntArray

__all__ = ["LevelGrowth"]


class LevelGrowth:
    """Trees on the committed tokens of a batch.

    Args:
        network: drafts.
        texts: whose committed tokens are read.
        states: `[b, 1, d]` at the roots.
        seconds: learns what levels cost.
    """

    def __init__(self, network: HeadNetwork, texts: PaddedTexts, states: Tensor, seconds: LevelSeconds) -> None:
        n_texts = len(states)
        self._network = network
        self._texts = texts
        self._seconds = seconds
        self._states = states  # [b, w, d] at the nodes of the last level that was read
        self._nodes = np.arange(n_texts)  # these nodes, and the column of each
        self._columns = np.zeros(n_texts, np.int64)
        self._is_ancestor = np.zeros((n_texts, 1, 0), bool)

    def grow(
        self,
        trees: DynamicTrees,
        n_laws: int,
        choose: Callable[[NDArray[np.int64], IntArray, FloatArray], Candidates],
        beams: Callable[[], NDArray[np.int64]],
    ) -> None:
        """Add levels until there is no beam left.

        Args:
            trees: roots alone.
            n_laws: likeliest tokens of each law from which candidates are chosen.
            choose: candidates of nodes, given these tokens and their log-probabilities.
            beams: nodes of the newest level whose children come next, tree by tree.
        """
        trees.expand(self._nodes, choose(self._nodes, *self._laws(trees, n_laws)))
        while len(nodes := beams()):
            started = time.perf_counter()
            self._read(trees, nodes)
            laws = self._laws(trees, n_laws)
            self._seconds.observe(len(nodes), time.perf_counter() - started)
            trees.expand(nodes, choose(nodes, *laws))

    def _laws(self, trees: DynamicTrees, n_laws: int) -> tuple[IntArray, FloatArray]:
        """Return the laws of all nodes of the level in one product, without padding."""
        texts = torch.from_numpy(trees.tree[self._nodes])
        return likeliest(self._network, self._states[texts, torch.from_numpy(self._columns)], n_laws)

    def _read(self, trees: DynamicTrees, nodes: NDArray[np.int64]) -> None:
        texts = trees.tree[nodes]
        columns = np.arange(len(nodes)) - np.searchsorted(texts, texts)
        column_of = np.zeros(len(trees.token), np.int64)
        column_of[self._nodes] = self._columns
        n_texts, width = len(self._states), int(columns.max()) + 1
        token_ids = np.zeros((n_texts, width), np.int32)
        above = np.zeros((n_texts, width), np.int64)  # column of each node's parent; padding is below the first one
        token_ids[texts, columns] = trees.token[nodes]
        above[texts, columns] = column_of[trees.parent[nodes]]
        every = np.arange(n_texts)[:, None]
        itself = np.broadcast_to(np.eye(width, dtype=bool), (n_texts, width, width))
        self._is_ancestor = np.concatenate([self._is_ancestor[every, above], itself], axis=2)
        states = self._states[torch.from_numpy(every), torch.from_numpy(above)]
        self._states = self._texts.read_drafts(token_ids, states, int(trees.depth[nodes[0]]), self._is_ancestor)
        self._nodes, self._columns = nodes, columns
