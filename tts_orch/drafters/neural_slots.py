"""Draft trees of a network on the committed positions of several trajectories, all of them in one batch.

Source: EAGLE-2, arXiv 2406.16858.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from tts_orch.config import DraftingConfig
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.drafted_text import DraftedText
from tts_orch.drafters.kept_keys import SharedPrefixes
from tts_orch.drafters.level_growth import LevelGrowth
from tts_orch.drafters.level_seconds import LevelSeconds
from tts_orch.drafters.padded_texts import PaddedTexts
from tts_orch.policies.drafting.draft_tree import DraftTree, Growth
from tts_orch.policies.drafting.dynamic_tree import DynamicTrees
from tts_orch.policies.drafting.law_candidates import Candidates, Parents, choose_candidates
from tts_orch.policies.drafting.paying_nodes import paying_nodes
from tts_orch.records import FloatArray, IntArray

__all__ = ["NeuralSlots"]

_LAWS_A_CANDIDATE: Final = 4
"""So many tokens of a law for each candidate: noise lifts what is less likely."""


@dataclass(frozen=True, slots=True)
class NeuralSlots:
    """Slots of several trajectories at their committed positions (`RankedSlots`).

    Args:
        network: proposes tokens.
        config: depth and width of trees, and how candidates are chosen.
        shared: rows of other texts, which these may begin like.
        seconds: what levels cost.
        rates: `[kinds]` acceptance rates where nobody has learned any.
        texts: of the trajectories.
    """

    network: HeadNetwork
    config: DraftingConfig
    shared: SharedPrefixes
    seconds: LevelSeconds
    rates: NDArray[np.float64]
    texts: Sequence[DraftedText]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory of its `n_nodes[i]` most promising nodes."""
        depth = np.full(len(self.texts), self.config.draft_depth)
        return self._draft(np.asarray(n_nodes, np.int64), depth, self.rates, None)

    def grow_while_paying(self, growth: Growth) -> list[DraftTree]:
        """Return one tree a trajectory, drafted level by level while levels pay, then cut to the nodes that pay."""
        depth = np.minimum(growth.max_depth, self.config.draft_depth)
        return paying_nodes(self._draft(growth.max_nodes, depth, growth.rates, growth), growth)

    @torch.inference_mode()
    def _draft(
        self, n_nodes: NDArray[np.int64], depth: NDArray[np.int64], rates: NDArray[np.float64], growth: Growth | None
    ) -> list[DraftTree]:
        trees = [DraftTree.root_only(text.root) for text in self.texts]
        drafting = [
            i for i, text in enumerate(self.texts) if min(n_nodes[i], depth[i]) > 0 and text.can_be_read(int(depth[i]))
        ]
        if drafting:
            texts = [self.texts[i] for i in drafting]
            grown = self._grow(texts, n_nodes[drafting], depth[drafting], rates, growth)
            for i, tree in zip(drafting, grown, strict=True):
                trees[i] = tree
        return trees

    def _grow(
        self,
        texts: Sequence[DraftedText],
        n_nodes: NDArray[np.int64],
        depth: NDArray[np.int64],
        rates: NDArray[np.float64],
        growth: Growth | None,
    ) -> list[DraftTree]:
        trees = DynamicTrees([text.root for text in texts], rates)
        width = self.config.draft_width

        def choose(nodes: NDArray[np.int64], ids: IntArray, log_q: FloatArray) -> Candidates:
            return choose_candidates(ids, log_q, self._parents(texts, trees, nodes), width)

        def beams() -> NDArray[np.int64]:
            nodes = trees.beams(np.minimum(width, n_nodes), depth)
            return nodes if growth is None else self._paying(trees, nodes, growth.tokens_per_second)

        self._read_beginnings(texts)
        padded = PaddedTexts(self.network, [text.keys for text in texts])
        states = padded.read_committed(*_unread(texts))
        for text in texts:
            text.drop_features()
        LevelGrowth(self.network, padded, states, self.seconds).grow(trees, _LAWS_A_CANDIDATE * width, choose, beams)
        return trees.build(n_nodes)

    def _read_beginnings(self, texts: Sequence[DraftedText]) -> None:
        """Read each text that nobody has begun to read once, so that those that begin alike find it."""
        for text in texts:
            text.begin(self.shared)
        new = {text.tokens.tokens.tobytes(): text for text in texts if not text.keys.n_rows}
        if not new:
            return
        firsts = list(new.values())
        PaddedTexts(self.network, [text.keys for text in firsts]).read_committed(*_unread(firsts))
        for text in firsts:
            self.shared.remember(text.tokens.tokens, text.keys)
        for text in texts:
            text.begin(self.shared)

    def _parents(self, texts: Sequence[DraftedText], trees: DynamicTrees, nodes: NDArray[np.int64]) -> Parents:
        starts = [texts[tree].start for tree in trees.tree[nodes]]
        lengths = np.array([len(texts[tree].tokens) for tree in trees.tree[nodes]], np.int64)
        is_stochastic = self.config.draft_sampling == "stochastic"
        return Parents(
            [start.law for start in starts],
            np.array([start.is_keyed and is_stochastic for start in starts], bool),
            np.array([start.seed for start in starts], np.uint64),
            lengths + trees.depth[nodes].astype(np.int64),
            trees.depth[nodes] + np.int32(1),
        )

    def _paying(self, trees: DynamicTrees, nodes: NDArray[np.int64], tokens_per_second: float) -> NDArray[np.int64]:
        """Return those of some beams, of all trees, that are worth a row of the next level.

        A beam promises that it is accepted, and then one of its children; the latter as likely as one of the root's.
        """
        is_first = trees.depth == 1
        follows = np.bincount(trees.tree[is_first], trees.acceptance[is_first], trees.n_trees)
        promise = trees.acceptance[nodes] * np.minimum(follows, 1.0)[trees.tree[nodes]]
        order = np.argsort(-promise, kind="stable")
        gains = np.concatenate([[0.0], np.cumsum(promise[order])])
        n_best = int(np.argmax(gains - tokens_per_second * self.seconds.estimate(len(nodes))))
        return nodes[np.sort(order[:n_best])]


def _unread(texts: Sequence[DraftedText]) -> tuple[list[IntArray], list[torch.Tensor] | None]:
    tokens, features = zip(*(text.unread() for text in texts), strict=True)
    return list(tokens), None if features[0] is None else list(features)
