"""`DraftBalance`: drafts live on what they earned, and on a small allowance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_balance import DraftBalance


def _seconds(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.01 + 0.001 * rows


def _book(
    balance: DraftBalance, *, n_roots: int = 4, n_drafts: int = 8, n_gained: int = 0, learning: float = 0.0
) -> None:
    balance.book(n_roots, n_drafts, 0, n_gained, 0.0, learning)


def _rest(balance: DraftBalance) -> int:
    """Return after how many passes without drafts there are drafts again."""
    for n in range(10_000):
        if balance.affords_drafts:
            return n
        _book(balance, n_drafts=0)
    raise AssertionError("drafting never came back")


def test_useless_drafts_rest_and_are_tried_again() -> None:
    balance, drafted, n_passes = DraftBalance(_seconds), 0, 4000
    for _ in range(n_passes):
        is_drafted = balance.affords_drafts
        drafted += is_drafted
        _book(balance, n_drafts=8 if is_drafted else 0)
    assert drafted >= 5
    lost = drafted * 0.008 / (n_passes * 0.014)
    assert lost < 0.008, "drafts cost more than their allowance and the grant at first"


def test_drafts_that_pay_never_rest() -> None:
    balance = DraftBalance(_seconds)
    for _ in range(1000):
        assert balance.affords_drafts
        _book(balance, n_gained=4)  # 8 rows cost 8/14 of a pass of 4 tokens, 2.3


def test_success_is_saved_up_to_a_bound() -> None:
    """What was saved can be lost when the workload changes, and no more than that."""
    balance = DraftBalance(_seconds)
    for _ in range(10_000):
        _book(balance, n_gained=100)
    n_lost = 0
    while balance.affords_drafts:
        _book(balance)
        n_lost += 1
    assert n_lost * 4 * 0.008 / 0.014 < 20


def test_a_hiccup_is_forgiven() -> None:
    """However slow the machine was in one pass, drafts come back after as many passes as a few tokens take to save."""
    balance = DraftBalance(_seconds)
    balance.book(4, 8, 0, 0, 1000.0, 0.0)
    assert _rest(balance) <= 250


def test_learning_goes_on_at_rest_within_its_own_allowance() -> None:
    balance, n_learned, learning = DraftBalance(_seconds), 0, 0.000_35
    balance.book(4, 8, 0, 0, 1000.0, 0.0)
    for n_passes in range(1, 10_000):  # noqa: B007
        is_learned = balance.affords_learning
        n_learned += is_learned
        _book(balance, n_drafts=0, learning=learning if is_learned else 0.0)
        if balance.affords_drafts:
            break
    assert n_learned * learning / (n_passes * 0.014) == pytest.approx(0.005, rel=0.2)


def test_learning_is_free_while_drafts_are_drawn() -> None:
    balance = DraftBalance(_seconds)
    for _ in range(100):
        assert balance.affords_learning
        _book(balance, n_gained=4, learning=0.001)


@given(
    st.lists(
        st.tuples(st.integers(1, 16), st.integers(0, 64), st.integers(0, 256), st.integers(0, 200), st.floats(0, 1)),
        max_size=50,
    )
)
def test_drafts_always_come_back(passes: list[tuple[int, int, int, int, float]]) -> None:
    balance = DraftBalance(_seconds)
    for n_roots, n_drafts, other_rows, n_gained, seconds in passes:
        balance.book(n_roots, n_drafts, other_rows, n_gained, seconds, seconds / 2)
    assert _rest(balance) <= 250
