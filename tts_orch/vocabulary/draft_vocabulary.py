"""`DraftVocabulary`: the tokens of a target that a draft head may propose.

A head's logits have a column for each of them. Files of heads hold two maps: `d2t`, which is added to a column's number to give
the token (an offset, not an id), and `t2d`, which marks the tokens that have a column.

Source: EAGLE-3, arXiv 2503.01840; the maps are those of its published heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_orch.errors import ConfigError

__all__ = ["DraftVocabulary"]


@dataclass(frozen=True, slots=True, eq=False)
class DraftVocabulary:
    """Tokens in the order of a head's columns.

    Attributes:
        ids: `[k]` tokens of the target, strictly increasing; at least one.
        vocab_size: of the target; ids are below it.

    Raises:
        ValueError: ids are none, out of order, twice there, or out of range.
    """

    ids: NDArray[np.int64]
    vocab_size: int

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or not self.size:
            raise ValueError("a draft vocabulary is a list of at least one token")
        if not (np.diff(self.ids) > 0).all():
            raise ValueError("tokens of a draft vocabulary must be strictly increasing")
        if not 0 <= self.ids[0] <= self.ids[-1] < self.vocab_size:
            raise ValueError(
                f"tokens {self.ids[0]} to {self.ids[-1]} of a draft vocabulary, but the target has {self.vocab_size}"
            )

    @property
    def size(self) -> int:
        """Number of tokens, `k`."""
        return len(self.ids)

    @property
    def d2t(self) -> NDArray[np.int64]:
        """`[k]` what is added to a column's number to give its token."""
        return self.ids - np.arange(self.size)

    @property
    def t2d(self) -> NDArray[np.bool_]:
        """`[vocab_size]`, true for tokens that have a column."""
        marks = np.zeros(self.vocab_size, bool)
        marks[self.ids] = True
        return marks

    @classmethod
    def from_maps(cls, d2t: NDArray[np.integer], t2d: NDArray[np.generic], place: str) -> DraftVocabulary:
        """Return the vocabulary that two maps of a file describe.

        Args:
            d2t: `[k]` offsets.
            t2d: `[vocab_size]` marks, truth values or numbers 0 and 1.
            place: where the maps come from, for messages.

        Raises:
            ConfigError: they are no such maps, or disagree.
        """
        try:
            if d2t.ndim != 1 or d2t.dtype.kind != "i":
                raise ValueError(f"d2t must be a list of offsets, not {d2t.dtype} of shape {d2t.shape}")
            if t2d.ndim != 1 or not np.isin(t2d, (0, 1)).all():
                raise ValueError("t2d must mark each token of the target with true or false")
            n_marked = int(t2d.astype(bool).sum())
            if n_marked != len(d2t):
                raise ValueError(f"t2d marks {n_marked} tokens, d2t gives {len(d2t)}")
            vocabulary = cls(np.arange(len(d2t)) + d2t.astype(np.int64), len(t2d))
            if not t2d.astype(bool)[vocabulary.ids].all():
                raise ValueError("d2t gives tokens that t2d does not mark")
        except ValueError as error:
            raise ConfigError(f"{place}: {error}; take a head whose maps agree") from None
        return vocabulary

    def columns(self, token_ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the columns of tokens, `[n]`.

        Raises:
            ValueError: one of them has no column.
        """
        columns = np.searchsorted(self.ids, token_ids)
        if not np.array_equal(self.ids[np.minimum(columns, self.size - 1)], token_ids):
            raise ValueError("not all of these tokens are in the draft vocabulary")
        return columns.astype(np.int64)

    def __eq__(self, other: object) -> bool:
        """Compare tokens and sizes."""
        if not isinstance(other, DraftVocabulary):
            return NotImplemented
        return self.vocab_size == other.vocab_size and np.array_equal(self.ids, other.ids)

    __hash__ = None  # type: ignore[assignment]
