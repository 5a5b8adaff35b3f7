"""Find the token with which a stop string first appears in the decoded output.

A match may begin in one token and end in a later one, and a character may take several tokens. The scan is fed token by
token, so its verdict does not depend on how many tokens a verify step commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["StopScanner"]

_CONTEXT = 4
"""Prompt tokens decoded in front: some tokenizers drop the first token's leading space."""


class StopScanner:
    """Scans one trajectory's output.

    Args:
        decode: token ids to text, special tokens left out.
        prompt_ids: the prompt.
        stop_strings: texts to look for, none empty.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], prompt_ids: Sequence[int], stop_strings: Sequence[str]
    ) -> None:
        self._decode = decode
        self._stop_strings = stop_strings
        self._keep = max(map(len, stop_strings)) - 1
        self._ids = list(prompt_ids[-_CONTEXT:])
        self._window = 0  # decoding starts here ...
        self._read = len(self._ids)  # ... and what lies before this token has been read
        self._tail = ""

    def feed(self, token: int) -> bool:
        """Take the next output token and return whether a stop string is complete with it."""
        self._ids.append(token)
        known = self._decode(self._ids[self._window : self._read])
        fresh = self._decode(self._ids[self._window :])[len(known) :]
        text = self._tail + fresh
        if fresh and not fresh.endswith("\ufffd"):  # else an unfinished character: its last byte will change the text
            self._window, self._read = self._read, len(self._ids)
            self._tail = text[-self._keep :] if self._keep else ""
        return any(stop in text for stop in self._stop_strings)
