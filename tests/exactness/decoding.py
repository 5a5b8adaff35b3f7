"""Run requests through a decoder and collect what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Protocol

import numpy as np

from tests.exactness.drafters import CheckingDrafter
from tests.exactness.reference import Outcome
from tests.toys import TOY_MODELS, toy_tokenizer
from tts_orch.config import EngineConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import Target
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.records import Chunk, DecodeRequest, FinishReason, IntArray, SamplingParams
from tts_orch.seeds import trajectory_seed

_MOST_STEPS = 5000


class Stepped(Protocol):
    """What is fed with requests and stepped: a decoder, or several."""

    @property
    def is_idle(self) -> bool: ...

    def submit(self, request: DecodeRequest) -> None: ...

    def step(self) -> list[Chunk]: ...


@cache
def toy_target(architecture: str = "llama") -> Target:
    """Return the float64 toy of an architecture."""
    return Target(TOY_MODELS[architecture](), toy_tokenizer(), numerics="fast", name=architecture)


def new_decoder(target: Target, drafter: Drafter | None = None, *, n_pages: int = 64, **settings: object) -> Decoder:
    """Return a decoder that drafts as much as it may; `settings` are those of `EngineConfig`.

    A drafter that checks what it is told gets features as well, so that all tests see to them.
    """
    if isinstance(drafter, CheckingDrafter):
        drafter.feature_layers = (0, 1, -1)
    memory = (n_pages + 0.5) * target.bytes_per_page(drafter.feature_layers if drafter else ()) / 2**30
    config = EngineConfig(target="toy", kv_memory_gib=memory, **{"max_batch": 4, "max_nodes": 12, **settings})
    free_rows = CostModel([1.0], [1 << 30])
    return Decoder(target, drafter, config, free_rows)


def n_free_pages(decoder: Decoder) -> int:
    """Return how many pages nobody reads; all of them when nothing runs."""
    return decoder._admission._slots.n_available


def prompt(n_tokens: int, seed: int = 0) -> IntArray:
    """Return random text in which some stretches come twice, so that lookups hit."""
    random = np.random.default_rng([seed, n_tokens])
    tokens = random.integers(3, 97, n_tokens)
    half = n_tokens // 2
    tokens[half : 2 * half][: half // 2] = tokens[: half // 2]
    return tokens.astype(np.int32)


def request(
    name: str, token_ids: IntArray, law: SamplingParams, *, seed: int | None = None, scope: str = "scope"
) -> DecodeRequest:
    """Return a request whose seed follows from its name if it is not given."""
    seed = trajectory_seed(0, name, ()) if seed is None else seed
    return DecodeRequest(name, token_ids, len(token_ids), seed, law, scope)


def decode(
    decoder: Stepped, requests: Sequence[DecodeRequest], before_step: Callable[[int], object] = lambda step: None
) -> dict[str, Outcome]:
    """Decode requests to their ends."""
    for one in requests:
        decoder.submit(one)
    outcomes = {one.candidate_id: Outcome() for one in requests}
    starts = {one.candidate_id: len(one.token_ids) for one in requests}
    for step in range(_MOST_STEPS):
        if decoder.is_idle:
            return outcomes
        before_step(step)
        take(decoder.step(), outcomes, starts)
    raise AssertionError(f"not finished after {_MOST_STEPS} steps")


def take(chunks: Iterable[Chunk], outcomes: dict[str, Outcome], starts: dict[str, int]) -> None:
    """Append what a step committed; `starts` has the position of each outcome's first token."""
    for chunk in chunks:
        outcome = outcomes[chunk.candidate_id]
        assert outcome.reason is None, "a chunk after the last one"
        assert chunk.start == starts[chunk.candidate_id] + len(outcome.tokens)
        assert len(chunk.token_ids) or chunk.finish_reason in (FinishReason.CANCELLED, FinishReason.ERROR)
        outcome.tokens += chunk.token_ids.tolist()
        outcome.log_probs += chunk.log_probs.tolist()
        outcome.confidences += chunk.confidences.tolist()
        outcome.self_certainties += chunk.self_certainties.tolist()
        outcome.reason = chunk.finish_reason


def resumed(one: DecodeRequest, received: Outcome) -> DecodeRequest:
    """Return the request that goes on after what was received."""
    token_ids = np.concatenate([one.token_ids, np.array(received.tokens, np.int32)])
    return replace(
        one,
        token_ids=token_ids,
        statistics_from=len(token_ids) - 1 if received.tokens else 0,
        step_start=len(one.token_ids),
        confidences=tuple(received.confidences),
    )


def decode_with_abort(
    make_decoder: Callable[[], Stepped], requests: Sequence[DecodeRequest], abort_after: int
) -> dict[str, Outcome]:
    """Decode for some steps, lose the decoder, and let another one go on from the received tokens."""
    lost = make_decoder()
    for one in requests:
        lost.submit(one)
    outcomes = {one.candidate_id: Outcome() for one in requests}
    starts = {one.candidate_id: len(one.token_ids) for one in requests}
    for _ in range(abort_after):
        take(lost.step(), outcomes, starts)
    rest = [resumed(one, outcomes[one.candidate_id]) for one in requests if outcomes[one.candidate_id].reason is None]
    for name, outcome in decode(make_decoder(), rest).items():
        first = outcomes[name]
        first.tokens += outcome.tokens
        first.log_probs += outcome.log_probs
        first.confidences += outcome.confidences
        first.self_certainties += outcome.self_certainties
        first.reason = outcome.reason
    return outcomes
