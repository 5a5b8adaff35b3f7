"""Deltas as bytes: round trips, and nothing but a delta gets through."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.deltas import contents, random_delta
from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce
from tts_orch.store.wire import pack, unpack

ONE = ContextDelta(
    key=np.array([2**64 - 1], np.uint64),
    order=np.array([4], np.uint8),
    count=np.array([3], np.int64),
    start=np.array([0, 2], np.int64),
    ids=np.array([7, 151_935], np.int32),
    sums=np.array([1, 3 * 65535], np.int64),
)


@given(seed=st.integers(0, 2**32), n_tokens=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_round_trip(seed: int, n_tokens: int) -> None:
    delta = random_delta(seed, n_tokens)
    again = unpack(pack(delta))
    assert contents(again) == contents(delta)
    assert pack(again) == pack(delta)
    assert {name: getattr(again, name).dtype for name in again.__slots__} == {
        name: getattr(delta, name).dtype for name in delta.__slots__
    }


def test_empty_and_large_values() -> None:
    assert unpack(pack(ContextDelta.empty())).n_contexts == 0
    large = replace(ONE, count=np.array([1 << 40], np.int64), sums=np.array([1, 65535 << 40], np.int64))
    assert contents(unpack(pack(large))) == contents(large)


def test_bytes_are_fixed() -> None:
    header = b"TTSD" + struct.pack("<BII", 1, 1, 2)
    columns = b"\x08" + b"\xff" * 8 + b"\x01\x04" + b"\x01\x03" + b"\x01\x02"
    ids_and_sums = b"\x03" + b"\x07\x00\x00" + b"\x7f\x51\x02" + b"\x03" + b"\x01\x00\x00" + b"\xfd\xff\x02"
    assert pack(ONE) == header + columns + ids_and_sums


@given(seed=st.integers(0, 1000), n_parts=st.integers(2, 5), data=st.data())
@settings(max_examples=30, deadline=None)
def test_any_grouping_gives_the_same_bytes(seed: int, n_parts: int, data: st.DataObject) -> None:
    deltas = [random_delta(seed + i) for i in range(n_parts)]
    order = data.draw(st.permutations(range(n_parts)))
    cut = data.draw(st.integers(0, n_parts))
    grouped = coalesce([coalesce([deltas[i] for i in part]) for part in (order[:cut], order[cut:]) if part])
    assert pack(grouped) == pack(coalesce(deltas))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": np.array([0], np.uint8)}, "an order is impossible"),
        ({"order": np.array([5], np.uint8)}, "an order is impossible"),
        ({"count": np.array([0], np.int64)}, "a count is impossible"),
        ({"count": np.array([(1 << 40) + 1], np.int64)}, "a count is impossible"),
        ({"ids": np.array([7, 7], np.int32)}, "ids are not ascending"),
        ({"ids": np.array([9, 7], np.int32)}, "ids are not ascending"),
        ({"ids": np.array([7, 1 << 31], np.int64)}, "no token id"),
        ({"sums": np.array([1, 3 * 65535 + 1], np.int64)}, "a sum exceeds its count"),
        ({"sums": np.array([0, 5], np.int64)}, "a sum exceeds its count"),
        ({"start": np.array([0, 1], np.int64)}, "do not own all"),
    ],
)
def test_impossible_contents_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        unpack(pack(replace(ONE, **change)))


def test_unsorted_keys_are_refused() -> None:
    delta = random_delta(0)
    with pytest.raises(StoreError, match="keys are not ascending"):
        unpack(pack(replace(delta, key=delta.key[::-1])))


@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_bytes_raise_or_stay_a_delta(seed: int, data: st.DataObject) -> None:
    blob = bytearray(pack(random_delta(seed, 3)))
    if data.draw(st.booleans()):
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
        with pytest.raises(StoreError):
            unpack(bytes(blob))
        return
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        delta = unpack(bytes(blob))
    except StoreError:
        return
    assert (delta.ids >= 0).all()
    assert delta.start[-1] == len(delta.ids) == len(delta.sums)


def test_more_bytes_than_announced_are_refused() -> None:
    with pytest.raises(StoreError, match="should end at"):
        unpack(pack(ONE) + b"\0")
    with pytest.raises(StoreError, match="this program reads"):
        unpack(b"TTSD\x02" + pack(ONE)[5:])
