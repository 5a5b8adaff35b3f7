"""Maps between a head's columns and the target's tokens: there and back, and refused where they disagree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tts_orch.errors import ConfigError
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary


@st.composite
def _vocabularies(draw: st.DrawFn) -> DraftVocabulary:
    vocab_size = draw(st.integers(1, 60))
    ids = draw(st.sets(st.integers(0, vocab_size - 1), min_size=1))
    return DraftVocabulary(np.array(sorted(ids), np.int64), vocab_size)


@given(_vocabularies())
def test_maps_lead_back_to_the_vocabulary(vocabulary: DraftVocabulary) -> None:
    d2t, t2d = vocabulary.d2t, vocabulary.t2d
    assert d2t.dtype == np.int64
    assert t2d.dtype == np.bool_
    assert t2d.sum() == len(d2t) == vocabulary.size
    assert [column + offset for column, offset in enumerate(d2t)] == vocabulary.ids.tolist()
    assert DraftVocabulary.from_maps(d2t, t2d, "a file") == vocabulary
    assert vocabulary.columns(vocabulary.ids[::-1]).tolist() == list(range(vocabulary.size))[::-1]


def test_all_tokens_are_offsets_of_zero() -> None:
    assert DraftVocabulary(np.arange(5), 5).d2t.tolist() == [0] * 5


def test_vocabularies_differ_by_tokens_and_by_target() -> None:
    one = DraftVocabulary(np.array([1, 4]), 9)
    assert one == DraftVocabulary(np.array([1, 4]), 9)
    assert one != DraftVocabulary(np.array([1, 5]), 9)
    assert one != DraftVocabulary(np.array([1, 4]), 8)
    assert one != "another thing"


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "at least one"),
        ([[1, 2]], "at least one"),
        ([1, 1], "strictly increasing"),
        ([2, 1], "strictly increasing"),
        ([-1, 1], "-1 to 1"),
        ([0, 9], "the target has 9"),
    ],
)
def test_refuses_what_is_no_vocabulary(ids: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DraftVocabulary(np.array(ids, np.int64), 9)


@pytest.mark.parametrize("tokens", [[0], [3], [8], [1, 3]])
def test_tokens_without_a_column_are_refused(tokens: list[int]) -> None:
    with pytest.raises(ValueError, match="in the draft vocabulary"):
        DraftVocabulary(np.array([1, 4]), 9).columns(np.array(tokens))


def _maps() -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    vocabulary = DraftVocabulary(np.array([1, 4, 5]), 9)
    return vocabulary.d2t, vocabulary.t2d


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d2t, t2d: (d2t[:2], t2d), "t2d marks 3 tokens, d2t gives 2"),
        (lambda d2t, t2d: (d2t + np.array([0, 0, 1]), t2d), "does not mark"),
        (lambda d2t, t2d: (d2t * [1, 1, 0], t2d), "strictly increasing"),
        (lambda d2t, t2d: (d2t + 20, t2d), "the target has 9"),
        (lambda d2t, t2d: (d2t - 2, t2d), "-1 to 3"),
        (lambda d2t, t2d: (d2t + np.arange(3), t2d), "does not mark"),  # ids in place of offsets
        (lambda d2t, t2d: (d2t.astype(float), t2d), "float64"),
        (lambda d2t, t2d: (d2t[None], t2d), "list of offsets"),
        (lambda d2t, t2d: (d2t, t2d.astype(int) * 2), "t2d must mark"),
        (lambda d2t, t2d: (d2t, t2d[None]), "t2d must mark"),
        (lambda d2t, t2d: (d2t[:0], t2d & False), "at least one"),
    ],
)
def test_maps_that_disagree_are_refused_in_one_line(
    change: Callable[..., tuple[NDArray[np.integer], NDArray[np.generic]]], message: str
) -> None:
    d2t, t2d = change(*_maps())
    with pytest.raises(ConfigError, match=message) as caught:
        DraftVocabulary.from_maps(d2t, t2d, "head/model.safetensors")
    assert str(caught.value).startswith("head/model.safetensors: ")
    assert "\n" not in str(caught.value)


def test_marks_may_be_numbers() -> None:
    d2t, t2d = _maps()
    assert DraftVocabulary.from_maps(d2t.astype(np.int32), t2d.astype(np.uint8), "a file").ids.tolist() == [1, 4, 5]
