"""Drafters that change while trajectories run: the new ones are told everything anew, and no token changes."""

from __future__ import annotations

import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.drafters import CheckingDrafter, RandomDrafter
from tts_orch.errors import ConfigError
from tts_orch.records import SamplingParams

LAW = SamplingParams(temperature=0.8, max_new_tokens=120)
REQUESTS = [request(f"r{i}", prompt(20 + 8 * i, seed=i), LAW) for i in range(4)]


class FeatureReader(RandomDrafter):
    """Objects to gaps in the features that it is told, and drafts at random."""

    feature_layers = (0, 1, -1)


class TextReader(RandomDrafter):
    """Reads tokens alone."""

    feature_layers = ()


def drafter(number: int) -> CheckingDrafter:
    kind = FeatureReader if number % 3 else TextReader
    return kind(97, [2], seed=number)


@pytest.mark.parametrize(("n_pages", "node_budget"), [(64, False), (7, True)])
def test_tokens_stay_while_drafters_change(n_pages: int, node_budget: bool) -> None:
    first = FeatureReader(97, [2])
    decoder = new_decoder(toy_target(), first, n_pages=n_pages, node_budget=node_budget)
    used: list[CheckingDrafter] = [first]

    def change(step: int) -> None:
        if step % 4 == 3:
            used.append(drafter(len(used)))
            decoder.change_drafter(lambda old: used[-1])

    assert decode(decoder, REQUESTS, change) == decode(new_decoder(toy_target()), REQUESTS)
    assert len(used) > 5
    assert all(told.is_closed for one in used for told in one.told.values())
    assert sum(len(told.steps) > 1 for one in used for told in one.told.values()) > len(REQUESTS)
    if n_pages == 7:
        assert decoder.statistics()["preemptions"] > 0


def test_a_drafter_that_reads_what_nobody_kept_is_refused() -> None:
    other = FeatureReader(97, [2])
    other.feature_layers = (2,)
    decoder = new_decoder(toy_target(), FeatureReader(97, [2]))
    with pytest.raises(
        ConfigError, match=r"^drafters: the new one reads hidden states \[2\], and kept are \[0, 1, -1\]"
    ):
        decoder.change_drafter(lambda old: other)
    with pytest.raises(ConfigError, match="drafts not at all"):
        new_decoder(toy_target()).change_drafter(lambda old: old)
