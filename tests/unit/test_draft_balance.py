"""`DraftBalance`: drafts live on what they earned, and on a small allowance."""

import pytest

from tts_orch.policies.drafting.draft_balance import DraftBalance

_PLAIN = 0.014  # seconds of a pass of the 4 trajectories of most tests
_ROW = 0.001


def _new() -> DraftBalance:
    return DraftBalance(lambda rows: 0.01 + _ROW * rows)


def _book(
    balance: DraftBalance, *, n_drafts: int = 0, n_gained: int = 0, drafting: float = 0.0, learning: float = 0.0
) -> None:
    balance.book(4, n_drafts, 0, n_gained, drafting, learning)


def test_useless_drafts_rest_and_are_tried_again() -> None:
    balance, lost, n_passes, n_late = _new(), 0.0, 20_000, 0
    for n in range(n_passes):
        n_drafts = 8 if balance.affords_drafts else 0
        n_late += n_drafts > 0 and n > n_passes / 2
        lost += n_drafts * _ROW
        _book(balance, n_drafts=n_drafts)
    assert n_late >= 10
    assert lost / (n_passes * _PLAIN) < 0.005


def test_drafts_that_pay_never_rest() -> None:
    balance = _new()
    for _ in range(1000):
        assert balance.affords_drafts
        _book(balance, n_drafts=8, n_gained=4)  # 8 rows cost 8/14 of a pass of 4 tokens, 2.3


def test_success_is_saved_up_to_a_bound() -> None:
    """What was saved can be lost when the workload changes, and no more than that."""
    balance, lost = _new(), 0.0
    for _ in range(10_000):
        _book(balance, n_drafts=8, n_gained=100)
    while balance.affords_drafts:
        _book(balance, n_drafts=8)
        lost += 4 * 8 * _ROW / _PLAIN
    assert 60 < lost < 70


def test_looking_in_vain_costs_a_share_of_the_time() -> None:
    """Drafting that finds nothing worth a row is cheap, but not free."""
    balance, spent, n_passes = _new(), 0.0, 20_000
    for _ in range(n_passes):
        drafting = 0.000_2 if balance.affords_drafts else 0.0
        spent += drafting
        _book(balance, drafting=drafting)
    assert spent / (n_passes * _PLAIN) == pytest.approx(0.003, rel=0.2)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_looking_that_takes_long_is_the_rarer_for_it(share: float) -> None:
    """A network whose drafts are never worth a row, for 16 trajectories: what it takes of a pass, and for how many passes."""
    balance, spent, n_passes = _new(), 0.0, 10_000
    plain = 0.01 + 16 * _ROW
    for _ in range(n_passes):
        drafting = share * plain if balance.affords_drafts else 0.0
        spent += drafting
        balance.book(16, 0, 0, 0, drafting or 1e-6, 0.0)  # who rests is still asked whether it does
    assert 0.002 < spent / (n_passes * plain) < 0.005


def test_success_pays_for_looking() -> None:
    """Half of the passes find nothing, the other half brings a token: drafting never rests."""
    balance = _new()
    for n in range(1000):
        assert balance.affords_drafts
        _book(balance, n_drafts=n % 2, n_gained=n % 2, drafting=0.000_2)


@pytest.mark.parametrize("n_useless", [0, 2000])
def test_learning_in_vain_costs_a_share_of_the_time(n_useless: int) -> None:
    """Whether drafts have lost all they had before or not; no debt of earlier times stops it for long."""
    balance, learned, n_passes = _new(), 0.0, 5000
    for _ in range(n_useless):
        _book(balance, n_drafts=8 if balance.affords_drafts else 0, learning=0.01)
    for _ in range(n_passes):
        learning = 0.000_2 if balance.affords_learning else 0.000_05
        learned += learning * balance.affords_learning
        _book(balance, learning=learning)
    assert learned / (n_passes * _PLAIN) == pytest.approx(0.003, rel=0.2)


def test_learning_goes_on_while_drafts_pay() -> None:
    """Every tenth pass brings a token: tables are filled in all of them."""
    balance = _new()
    for n in range(1000):
        assert balance.affords_learning
        _book(balance, n_drafts=n % 10 == 0, n_gained=n % 10 == 0, learning=0.000_2)


def test_a_pause_of_the_machine_is_forgiven() -> None:
    """Whether drafts or learning take that long, at first or later, once or twice, found or not."""
    balance = _new()
    for n in range(200):
        assert balance.affords_drafts
        seconds = 1000.0 if n in (0, 50, 100, 101) else 0.000_1
        _book(balance, n_drafts=n % 2, n_gained=n % 2, drafting=seconds, learning=seconds)


def test_drafts_that_take_long_are_dear_whether_they_are_learned_from_or_not() -> None:
    """As long as three passes: they are found out in a few of these."""
    for n_drafts, learning in ((0, 0.0), (1, 0.0), (1, 2 * _PLAIN)):
        balance, n_drafted = _new(), 0
        for _ in range(500):
            n_drafted += balance.affords_drafts
            _book(
                balance, n_drafts=n_drafts * balance.affords_drafts, drafting=3 * _PLAIN - learning, learning=learning
            )
        assert n_drafted <= 6
