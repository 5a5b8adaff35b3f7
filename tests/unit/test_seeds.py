"""The integer contract of all noise: Random123's published vectors, and who reads which word."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.seeds import noise_words, philox, trajectory_seed

WORDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_vectors(counter: str, key: str, expected: str) -> None:
    low, high = (int(word, 16) for word in key.split())
    words = philox(low | high << 32, np.array([int(word, 16) for word in counter.split()], np.uint32))
    assert [f"{word:08x}" for word in words] == expected.split()


@given(seed=st.integers(0, 2**64 - 1), position=WORDS, token_id=st.integers(0, 2**31), plane=st.integers(0, 1))
def test_each_id_reads_its_word(seed: int, position: int, token_id: int, plane: int) -> None:
    expected = philox(seed, np.array([token_id // 4, position, plane, 0], np.uint32))[token_id % 4]
    assert noise_words(seed, position, np.array([token_id]), plane)[0] == expected


def test_a_trajectory_seed_is_a_function_of_its_place() -> None:
    assert trajectory_seed(0, "a", (1, 2)) == trajectory_seed(0, "a", [1, 2])
    places = [(0, "a", ()), (0, "a", (1, 2)), (0, "a", (12,)), (1, "a", (1, 2)), (0, "b", (1, 2)), (0, 'a",1', (2,))]
    assert len({trajectory_seed(*place) for place in places}) == len(places)


def test_trajectory_seeds_stay_what_they_were() -> None:
    assert trajectory_seed(0, "problem-1", (3,)) == 16746231372267076215
