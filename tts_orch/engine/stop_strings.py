"""Find the tokens with which a stop string is complete in the decoded output.

A match may begin in one token and end in a later one, and a character may take several tokens. The scan is fed token by
token, so its verdict does not depend on how many tokens a verify step commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["StopScanner"]

_CONTEXT = 4
"""Tokens before the output that are decoded in front: some tokenizers drop the first token's leading space."""
_UNFINISHED = "\ufffd"
"""What bytes of an unfinished character are decoded to."""


class StopScanner:
    """Scans one trajectory's output, or a part of it.

    Args:
        decode: token ids to text, special tokens left out.
        before: the tokens before it, whose text does not count.
        stop_strings: texts to look for, none empty.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], before: Sequence[int], stop_strings: Sequence[str]
    ) -> None:
        self._decode = decode
        self._stop_strings = stop_strings
        self._keep = max(map(len, stop_strings)) - 1
        self._ids = list(before[-_CONTEXT:])
        self._window = 0  # decoding starts here ...
        self._read = len(self._ids)  # ... and what lies before this token has been read
        self._tail = ""
        self._n_searched = 0  # characters, the tail's included, in which no match that is new can end

    def feed(self, token: int) -> bool:
        """Take the next token and return whether a stop string is complete with it that was not before."""
        self._ids.append(token)
        known = self._decode(self._ids[self._window : self._read])
        fresh = self._decode(self._ids[self._window :])[len(known) :]
        text = self._tail + fresh
        is_complete = any(text.find(stop, max(self._n_searched + 1 - len(stop), 0)) >= 0 for stop in self._stop_strings)
        if fresh and not fresh.endswith(_UNFINISHED):  # else its last byte will change the text
            self._window, self._read = self._read, len(self._ids)
            self._tail = text[-self._keep :] if self._keep else ""
            self._n_searched = len(self._tail)
        else:
            self._n_searched = len(text.rstrip(_UNFINISHED))
        return is_complete
