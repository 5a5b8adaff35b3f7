"""`KVSlots` against a naive account of who holds which page and what every shared page contains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tts_orch.engine.kv_slots import KVSlots
from tts_orch.engine.packing import PAGE
from tts_orch.records import IntArray

_N_PAGES = 9


def _pages_for(n_tokens: int) -> int:
    return -(-n_tokens // PAGE)


@st.composite
def _texts(draw: st.DrawFn) -> IntArray:
    """Tokens of up to three pages that often begin alike and end inside a page."""
    values = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    last = draw(st.sampled_from([1, 17, PAGE - 1, PAGE]))
    return np.repeat(np.array(values, np.int32), [PAGE] * (len(values) - 1) + [last])


@dataclass(eq=False)
class _Holder:
    """A trajectory that reads and writes pages as `Admission` does: never a page that others can see."""

    tokens: IntArray
    pages: list[int] = field(default_factory=list)


class KVSlotsMachine(RuleBasedStateMachine):
    """Trajectories come, share, grow and go."""

    holders = Bundle("holders")

    def __init__(self) -> None:
        super().__init__()
        self.slots = KVSlots(_N_PAGES)
        self.live: list[_Holder] = []
        self.cached: dict[int, list[int]] = {}  # page -> all tokens from position 0 to its last

    def held(self) -> set[int]:
        return {page for holder in self.live for page in holder.pages}

    def allocate(self, n: int) -> list[int] | None:
        held, available = self.held(), self.slots.n_available
        pages = self.slots.allocate(n)
        if pages is None:
            assert n > available
            assert self.slots.n_available == available, "a refusal must change nothing"
            return None
        assert len(set(pages)) == n <= available
        assert not held & set(pages), "handed out a page in use"
        for page in pages:
            self.cached.pop(page, None)
        return pages

    @rule(target=holders, tokens=_texts())
    def begin(self, tokens: IntArray) -> object:
        known = self.slots.find(tokens)
        read = [*known.pages, *([known.partial] if known.partial >= 0 else [])]
        assert known.n_tokens == self.longest_cached(tokens)
        assert len(read) == _pages_for(known.n_tokens)
        for i, page in enumerate(read):
            end = min((i + 1) * PAGE, known.n_tokens)
            assert self.cached[page][:end] == tokens[:end].tolist()
        holder = _Holder(tokens, read)
        self.live.append(holder)  # the found pages are reserved already
        own = self.allocate(_pages_for(len(tokens)) - len(known.pages))
        if own is None:
            self.slots.release(read)
            self.live.remove(holder)
            return multiple()
        if known.partial >= 0:
            self.slots.release([known.partial])
        holder.pages = known.pages + own
        return holder

    @rule(target=holders, holder=consumes(holders), share=st.floats(0, 1))
    def share(self, holder: _Holder, share: float) -> object:
        n = round(share * len(holder.tokens))
        offered = self.slots.share(holder.tokens[:n], holder.pages)
        assert set(offered) <= set(holder.pages[: _pages_for(n)])
        for page in offered:
            assert page not in self.cached
            self.cached[page] = holder.tokens[: min((holder.pages.index(page) + 1) * PAGE, n)].tolist()
        assert self.longest_cached(holder.tokens[:n]) == n
        return self.own_page_in_progress(holder, n)

    def own_page_in_progress(self, holder: _Holder, n: int) -> object:
        """Replace the page that is shared up to position `n` but goes on, as whoever wants to write there must."""
        last = holder.pages[n // PAGE] if n < len(holder.tokens) else holder.pages[-1]
        if n % PAGE == 0 or last not in self.cached:
            return holder
        copy = self.allocate(1)
        if copy is None:
            self.give_up(holder)
            return multiple()
        self.slots.release([last])
        holder.pages[holder.pages.index(last)] = copy[0]
        return holder

    @rule(target=holders, holder=consumes(holders), n_more=st.sampled_from([1, 20, PAGE]), value=st.integers(1, 2))
    def grow(self, holder: _Holder, n_more: int, value: int) -> object:
        pages = self.allocate(_pages_for(len(holder.tokens) + n_more) - len(holder.pages))
        if pages is None:
            self.give_up(holder)
            return multiple()
        holder.tokens = np.concatenate([holder.tokens, np.full(n_more, value, np.int32)])
        holder.pages = holder.pages + pages
        return holder

    @rule(holder=consumes(holders))
    def end(self, holder: _Holder) -> None:
        self.give_up(holder)

    def give_up(self, holder: _Holder) -> None:
        self.slots.release(holder.pages)
        self.live.remove(holder)

    def longest_cached(self, tokens: IntArray) -> int:
        longest = 0
        for content in self.cached.values():
            n = min(len(content), len(tokens))
            differ = np.flatnonzero(np.array(content[:n]) != tokens[:n])
            longest = max(longest, int(differ[0]) if len(differ) else n)
        return longest

    @invariant()
    def nothing_leaks(self) -> None:
        unread = _N_PAGES - len(self.held())
        assert self.slots.n_available <= unread
        if not self.live:
            assert self.slots.n_available == _N_PAGES

    def teardown(self) -> None:
        for holder in list(self.live):
            self.give_up(holder)
        assert sorted(self.allocate(_N_PAGES) or []) == list(range(_N_PAGES))


TestKVSlots = KVSlotsMachine.TestCase
TestKVSlots.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def _cache(slots: KVSlots, tokens: IntArray) -> list[int]:
    pages = slots.allocate(_pages_for(len(tokens)))
    assert pages is not None
    slots.share(tokens, pages)
    slots.release(pages)
    return pages


def _blocks(*values: int) -> IntArray:
    return np.repeat(np.array(values, np.int32), PAGE)


def test_the_least_recently_used_prefix_is_evicted_first() -> None:
    slots = KVSlots(3)
    first, second, third = (_cache(slots, _blocks(value)) for value in (1, 2, 3))
    slots.release(slots.find(_blocks(1)).pages)
    assert sorted(slots.allocate(2) or []) == sorted(second + third)
    assert slots.find(_blocks(1)).pages == first


def test_thousands_of_cached_pages_cost_no_walk() -> None:
    """Counting, evicting and finding whole pages look at the pages concerned and at no others."""
    n_pages = 3000
    slots = KVSlots(n_pages)
    for value in range(n_pages):
        _cache(slots, _blocks(value))
    compared: list[int] = []
    whole = slots._root.whole
    slots._root.whole = _Counted(whole, compared)
    assert slots.n_available == n_pages
    slots.release(slots.find(_blocks(1234)).pages)
    assert len(slots.allocate(10) or []) == 10
    assert not compared


class _Counted(dict[bytes, Any]):
    """Notes every walk over its values."""

    def __init__(self, values: dict[bytes, Any], walks: list[int]) -> None:
        super().__init__(values)
        self._walks = walks

    def values(self) -> Any:
        self._walks.append(len(self))
        return super().values()


def test_a_prefix_is_evicted_from_its_end() -> None:
    slots = KVSlots(3)
    pages = _cache(slots, _blocks(1, 2, 3))
    assert slots.allocate(1) == pages[2:]
    assert slots.find(_blocks(1, 2, 3)).pages == pages[:2]


def test_a_page_under_a_page_that_is_read_cannot_be_had() -> None:
    """Two trajectories computed the same first page; the second one's next page hangs below the first one's."""
    slots = KVSlots(4)
    _cache(slots, _blocks(1))
    own = slots.allocate(2)
    assert own is not None
    assert slots.share(_blocks(1, 2), own) == own[1:]
    assert slots.n_available == 1
    assert slots.allocate(2) is None
    slots.release(own)
    assert slots.n_available == 4


def test_content_that_is_cached_already_is_not_offered_again() -> None:
    slots = KVSlots(2)
    _cache(slots, _blocks(1)[:40])
    own = slots.allocate(1)
    assert own is not None
    assert slots.share(_blocks(1)[:30], own) == []
    assert slots.share(_blocks(1)[:50], own) == own


@pytest.mark.parametrize("n_tokens", [0, 1, PAGE - 1, PAGE, PAGE + 1])
def test_a_found_prefix_ends_in_a_page_to_copy_or_between_pages(n_tokens: int) -> None:
    slots = KVSlots(4)
    pages = _cache(slots, _blocks(1, 1, 1))
    known = slots.find(_blocks(1, 1)[:n_tokens])
    assert known.n_tokens == n_tokens
    assert known.pages == pages[: n_tokens // PAGE]
    assert known.partial == (pages[n_tokens // PAGE] if n_tokens % PAGE else -1)
