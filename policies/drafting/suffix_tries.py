"""SuffixDecoding: drafts from counted suffix tries, one of the trajectory's own text, one of all outputs of its scope.

Source: arXiv 2411.04975, with online updates of the shared trie: trajectories learn from each other while they run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.counted_trie import CountedTrie, TrieText
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart
from tts_orch.policies.drafting.text_drafter import TextDrafter
from tts_orch.policies.drafting.trie_growth import KINDS, Limits, best_draft

__all__ = ["SuffixText", "SuffixTries"]


class SuffixText:
    """A trajectory's text, counted in a trie of its own, its output in a shared one too.

    Args:
        shared: outputs of the scope.
        n_prompt: tokens at the beginning that are not output.
        limits: what bounds a draft besides the number of nodes.
    """

    def __init__(self, shared: CountedTrie, n_prompt: int, limits: Limits) -> None:
        self._own = CountedTrie(shared.max_depth)
        self._shared = shared
        self._text = TrieText()
        self._output = TrieText()
        self._n_prompt = n_prompt
        self._limits = limits

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        tokens = np.array(token_ids, np.int32)
        n_prompt_left = max(0, self._n_prompt - len(self._text.buffer))
        self._own.append(self._text, tokens)
        self._shared.append(self._output, tokens[n_prompt_left:])

    def draft(self, n_nodes: int) -> DraftTree:
        """Return the best draft of both tries."""
        tokens = self._text.buffer.tokens
        recent = tokens[-(self._own.max_depth - 1) :]
        columns, trie = best_draft((self._own.arrays, self._shared.arrays), recent, n_nodes, self._limits)
        token, parent, depth, slot, kind = columns
        source = np.where(depth > 0, np.int32(1 + trie), np.int32(0))
        return DraftTree(token, parent, depth, slot, np.zeros(len(token), np.float32), source, kind)


class SuffixTries(TextDrafter):
    """A `Drafter` of one tree a trajectory; `source` is 1 for the own trie, 2 for that of the scope.

    A node's probability is the product of the shares of counts along its path. Of all suffixes of the text that stand in
    a trie, the one whose draft has the largest sum of probabilities is followed.

    How many nodes are verified is the caller's choice, so by default nothing else bounds a draft. The paper drafts 1 to 4
    nodes for each token of the context, none with a probability below 0.1: fewer nodes, and fewer of them accepted.

    Args:
        max_depth: longest run of tokens that is counted, context and continuation together; at least 2. Twice as many
            cost twice the time and memory and gain nothing.
        nodes_per_match: most nodes of a draft for each token of the context it follows,
        extra_nodes: and on top.
        least_probability: nodes below it are not drafted.
        is_tree: drafts branch; otherwise they follow the most frequent child.
        max_shared_nodes: size of the trie of a scope, at 40 to 48 bytes a node; the outputs that came first make room.
    """

    def __init__(
        self,
        *,
        max_depth: int = 24,
        nodes_per_match: float = math.inf,
        extra_nodes: float = 0.0,
        least_probability: float = 0.0,
        is_tree: bool = True,
        max_shared_nodes: int = 1 << 20,
    ) -> None:
        super().__init__()
        self._max_depth = max_depth
        self._max_shared_nodes = max_shared_nodes
        self._limits: Limits = (float(nodes_per_match), float(extra_nodes), float(least_probability), is_tree)
        self._shared: dict[str, CountedTrie] = {}

    @property
    def priors(self) -> NDArray[np.float64]:
        """Acceptance rates to begin with: the longer the context, the more a share means."""
        n_contexts, n_shares = KINDS
        share = (np.arange(n_shares) + 0.5) / n_shares
        return (share ** np.linspace(1.25, 0.4, n_contexts)[:, None]).reshape(-1)

    def model(self, start: TrajectoryStart) -> SuffixText:
        """Return an empty text; the first one of a scope creates its trie."""
        shared = self._shared.get(start.scope)
        if shared is None:
            shared = self._shared[start.scope] = CountedTrie(self._max_depth, self._max_shared_nodes)
        return SuffixText(shared, len(start.token_ids), self._limits)

    def close_scope(self, scope: str) -> None:
        """Drop the trie of a scope; trajectories of it that still run keep it to themselves."""
        self._shared.pop(scope, None)
