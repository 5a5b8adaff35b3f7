"""Candidates that fail for good, the same ones on any number of workers: the result is the same too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.integration.local_verifier import LocalVerifier, at
from tests.integration.test_stepwise import solve, what_counts
from tts_orch.config import DVTS, BestOfN
from tts_orch.method_config import MethodConfig
from tts_orch.policies.search import find_policy
from tts_orch.records import Chunk, DecodeRequest, FinishReason

pytestmark = pytest.mark.timeout(60)

BEST = BestOfN(n=60)
SUBTREES = DVTS(n=60, beam_width=3, delimiters=("7",), min_step_tokens=2, max_steps=8, emit="all_siblings")


class FailingVerifier(LocalVerifier):
    """Fails one candidate of ten, told by their seeds."""

    def _take(self, submit: Sequence[DecodeRequest], cancel: Sequence[str]) -> None:
        failing = [request for request in submit if request.seed % 10 == 0]
        super()._take([request for request in submit if request.seed % 10], cancel)
        for request in failing:
            if request.candidate_id not in self.submitted:
                self.submitted.append(request.candidate_id)
                nothing = np.zeros(0, np.float32)
                start, tokens = len(request.token_ids), np.zeros(0, np.int32)
                self._chunks.append(
                    Chunk(
                        request.candidate_id,
                        start,
                        tokens,
                        nothing,
                        nothing,
                        nothing,
                        finish_reason=FinishReason.ERROR,
                        message="it fails",
                    )
                )


@pytest.mark.parametrize("method", [BEST, SUBTREES])
def test_one_worker_and_three_find_the_same_where_a_tenth_fails(method: MethodConfig) -> None:
    policy = find_policy(method)
    search: Any = partial(solve, policy=lambda problem, context: policy(problem, context, method))
    alone = search(FailingVerifier("a"))
    failed = [candidate for candidate in alone.candidates if candidate.finish_reason is FinishReason.ERROR]
    assert 1 <= len(failed) <= 15
    assert alone.answer is not None
    assert alone.chosen not in [candidate.path for candidate in failed]
    three = [FailingVerifier(name) for name in "abc"]
    assert what_counts(search(*three, n_started=3)) == what_counts(alone)
    assert all(verifier.submitted for verifier in three)
    one_dies = FailingVerifier("a", at(9, fault="die")), FailingVerifier("b"), FailingVerifier("c")
    assert what_counts(search(*one_dies, n_started=3)) == what_counts(alone)
    sound = search(LocalVerifier("a"))
    assert what_counts(sound) != what_counts(alone), "nothing failed"
