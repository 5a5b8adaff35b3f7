"""A suffix automaton: all substrings of some token texts in linear memory, growing at the ends of the texts.

A state stands for the substrings that end at the same places. `length` is that of its longest one, and its link leads to
the state of the longest suffix that ends in more places. Every state knows where it ended first.

Source: the online construction of Blumer et al. 1985 with first ends, arXiv 2411.10666. Ours: several texts grow side by
side; a token that follows a known text leads to the state that has it, split off if need be, instead of a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Match", "SuffixAutomaton"]


@dataclass(slots=True)
class Match:
    """The longest known suffix of a text that is being read.

    Attributes:
        state: where its tokens lead to.
        length: how many tokens match.
    """

    state: int = 0
    length: int = 0


class SuffixAutomaton:
    """All substrings of its texts; a token costs amortised constant time, and dictionaries keep the edges of a state.

    Attributes:
        texts: the tokens of each text.
        length: `[states]` tokens of each state's longest substring; state 0 is the root, the empty text.
        link: `[states]` state of the longest suffix that ends in more places; -1 for the root.
    """

    def __init__(self) -> None:
        self.texts: list[list[int]] = []
        self.length = [0]
        self.link = [-1]
        self._edges: list[dict[int, int]] = [{}]
        self._first_end = [(0, 0)]  # text, and its tokens up to the end
        self._whole: list[int] = []  # state of each whole text

    def add_text(self) -> int:
        """Begin a text and return its number."""
        self.texts.append([])
        self._whole.append(0)
        return len(self.texts) - 1

    def append(self, text: int, token: int) -> None:
        """Add a token at the end of a text."""
        self.texts[text].append(token)
        whole = self._whole[text]
        target = self._edges[whole].get(token)
        self._whole[text] = self._new(text, token) if target is None else self._exact(whole, token, target)

    def _new(self, text: int, token: int) -> int:
        """Return a new state for a text, since its last token never came after the rest of it."""
        state, edges, link = self._whole[text], self._edges, self.link
        new = self._add_state(self.length[state] + 1, 0, {}, (text, len(self.texts[text])))
        while state >= 0 and token not in edges[state]:
            edges[state][token] = new
            state = link[state]
        if state >= 0:
            link[new] = self._exact(state, token, edges[state][token])
        return new

    def _exact(self, state: int, token: int, target: int) -> int:
        """Return the state whose longest substring is that of `state` and `token`: the target, or a part split off it."""
        edges, link, length = self._edges, self.link, self.length[state] + 1
        if self.length[target] == length:
            return target
        part = self._add_state(length, link[target], edges[target].copy(), self._first_end[target])
        link[target] = part
        while state >= 0 and edges[state].get(token) == target:
            edges[state][token] = part
            state = link[state]
        return part

    def _add_state(self, length: int, link: int, edges: dict[int, int], first_end: tuple[int, int]) -> int:
        self.length.append(length)
        self.link.append(link)
        self._edges.append(edges)
        self._first_end.append(first_end)
        return len(self.length) - 1

    def advance(self, match: Match, token: int) -> None:
        """Read one more token: the longest suffix of the match that the token may follow gets longer by it."""
        state, length, edges, link = match.state, match.length, self._edges, self.link
        while state and self.length[link[state]] >= length:  # split while the texts grew
            state = link[state]
        while state and token not in edges[state]:
            state = link[state]
            length = self.length[state]
        match.state = edges[state].get(token, 0)
        match.length = length + 1 if match.state else 0

    def continuation(self, match: Match, n_tokens: int) -> tuple[Sequence[int], int]:
        """Return `n_tokens` tokens that followed a match where it ended first, and the tokens that matched.

        Shorter suffixes may have ended earlier, so where too little followed they are tried; none and 0 if all fail.
        """
        state, length = match.state, match.length
        while state:
            text, end = self._first_end[state]  # that of parts split off too
            if end + n_tokens <= len(self.texts[text]):
                return self.texts[text][end : end + n_tokens], length
            state = self.link[state]
            length = self.length[state]
        return [], 0
