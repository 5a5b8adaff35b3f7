"""SAM decoding: copy what followed the longest earlier match of a trajectory's end; another drafter where that is short.

Source: arXiv 2411.10666, with Token Recycling (arXiv 2408.08696) as its usual fallback. Ours: the automaton is that of a
scope, so that trajectories copy from each other, which raised the acceptance length wherever it was measured; and a
corpus is copied from as a chain too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import (
    Drafter,
    DraftTree,
    Features,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.policies.drafting.suffix_automaton import Match, SuffixAutomaton
from tts_orch.records import FloatArray, IntArray

__all__ = ["SamDecoding"]

MIN_MATCH: Final = 5
"""Shorter matches leave the draft to the fallback."""
CORPUS_HANDICAP: Final = 5
"""Tokens by which a match in the corpus counts as shorter than one in the texts."""
N_COPIED: Final = 40
"""Longest chain."""
FROM_TEXTS, FROM_CORPUS = 2, 3  # sources; the fallback has 1
_LENGTHS: Final = np.array([8, 16, 32])
_PRIORS: Final = (0.65, 0.75, 0.85, 0.85)  # measured at T=0.7, below 8, 16 and 32 tokens and above


@dataclass(frozen=True, slots=True)
class _Trajectory:
    texts: SuffixAutomaton
    text: int
    corpus: SuffixAutomaton
    match: Match = field(default_factory=Match)  # with what the texts had before
    corpus_match: Match = field(default_factory=Match)

    def append(self, token_ids: Sequence[int]) -> None:
        """Add committed tokens; each is matched before it becomes part of the text."""
        for token in token_ids:
            self.texts.advance(self.match, token)
            self.texts.append(self.text, token)
            self.corpus.advance(self.corpus_match, token)

    def chain(self, n_nodes: int, first_kind: int) -> DraftTree | None:
        """Return the copy with the longer match, None if that is too short."""
        n_tokens = min(n_nodes, N_COPIED)
        tokens, length = self.texts.continuation(self.match, n_tokens)
        from_corpus, corpus_length = self.corpus.continuation(self.corpus_match, n_tokens)
        source = FROM_TEXTS
        if corpus_length - CORPUS_HANDICAP > length:
            tokens, length, source = from_corpus, corpus_length - CORPUS_HANDICAP, FROM_CORPUS
        if length < MIN_MATCH:
            return None
        chain = DraftTree.chain(self.texts.texts[self.text][-1], tokens, source)
        matching = np.arange(length - 1, length + len(tokens))  # a node is judged when its parent has been accepted
        kind = first_kind + np.searchsorted(_LENGTHS, matching, side="right")
        kind[0] = 0
        return replace(chain, kind=kind.astype(np.int32))


class SamDecoding:
    """A `Drafter` of one chain where enough tokens match, else of its fallback's trees.

    `source` is 2 for nodes copied from the texts and 3 from the corpus. `kind` is the fallback's own or, behind these, one
    by the tokens that match once the node's parent is accepted.

    Args:
        fallback: drafts where matches are short; it is told everything.
        corpus: `[n]` texts of the target one after the other, each with its end of text.
        shares_scope: whether trajectories copy from the others of their scope, or from themselves alone.
        max_tokens: when a scope has about so many tokens, 320 bytes each, its next trajectories begin a new automaton.
    """

    def __init__(
        self,
        fallback: Drafter,
        *,
        corpus: IntArray | None = None,
        shares_scope: bool = True,
        max_tokens: int = 1 << 20,
    ) -> None:
        self._fallback = fallback
        self._corpus = SuffixAutomaton()
        if corpus is not None:
            text = self._corpus.add_text()
            for token in corpus.tolist():
                self._corpus.append(text, token)
        self._shares_scope = shares_scope
        self._max_tokens = max_tokens
        self._automata: dict[str, SuffixAutomaton] = {}
        self._trajectories: dict[TrajectoryId, _Trajectory] = {}

    @property
    def priors(self) -> NDArray[np.float64]:
        """Acceptance rates to begin with: the fallback's, then by match length."""
        return np.concatenate([self._fallback.priors, _PRIORS])

    @property
    def learns_from_rejected(self) -> bool:
        """Whether the fallback does."""
        return self._fallback.learns_from_rejected

    @property
    def learns_prompt_laws(self) -> bool:
        """Whether the fallback wants the laws of prompts."""
        return self._fallback.learns_prompt_laws

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Those of the fallback."""
        return self._fallback.feature_layers

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        texts = self._automaton(start.scope)
        known = self._trajectories[start.trajectory] = _Trajectory(texts, texts.add_text(), self._corpus)
        known.append(start.token_ids.tolist())
        self._fallback.start(start)

    def _automaton(self, scope: str) -> SuffixAutomaton:
        texts = self._automata.get(scope)
        if texts is None or len(texts.length) > self._max_tokens:
            texts = SuffixAutomaton()
            if self._shares_scope:
                self._automata[scope] = texts
        return texts

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        """Return the slots of these trajectories at their committed positions."""
        return _Slots(trajectories, [self._trajectories[trajectory] for trajectory in trajectories], self._fallback)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Pass the laws of a prefill on to the fallback."""
        self._fallback.observe_prompt(trajectory, start, law_ids, law_probs)

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        """Pass features on to the fallback."""
        self._fallback.observe_features(trajectory, start, features)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Append the committed tokens, and tell the fallback."""
        for step in steps:
            self._trajectories[step.trajectory].append(step.committed.tolist())
        self._fallback.observe(steps)

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; its text stays with its scope."""
        self._trajectories.pop(trajectory, None)
        self._fallback.close(trajectory)

    def close_scope(self, scope: str) -> None:
        """Drop the texts of a scope."""
        self._automata.pop(scope, None)
        self._fallback.close_scope(scope)


@dataclass(frozen=True, slots=True)
class _Slots:
    names: Sequence[TrajectoryId]
    trajectories: Sequence[_Trajectory]
    fallback: Drafter

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root."""
        first_kind = len(self.fallback.priors)
        chains = [known.chain(n, first_kind) for known, n in zip(self.trajectories, n_nodes, strict=True)]
        others = [i for i, chain in enumerate(chains) if chain is None]
        source = self.fallback.slots([self.names[i] for i in others])
        trees = iter(source.grow([n_nodes[i] for i in others]))
        return [next(trees) if chain is None else chain for chain in chains]
