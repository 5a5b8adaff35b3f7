"""A decoder without a model: tokens are a pure function of (seed, position), speed and death are chosen by the test."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tts_orch.actors.engine_loading import Engine
from tts_orch.config import EngineConfig
from tts_orch.errors import ConfigError, ProblemError
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Chunk, DecodeRequest, FinishReason, StepRule

EOS_ID = 0
MAX_CONTEXT = 512


def token_at(seed: int, position: int) -> int:
    """Return the token of a trajectory at an absolute position; about one in 41 is EOS."""
    return (seed // 7 + position * 2654435761 + (seed % 1009) * position) % 41


def expected_output(request_seed: int, prompt_length: int, max_new_tokens: int) -> list[int]:
    """Return the output tokens that a trajectory must have."""
    tokens: list[int] = []
    while len(tokens) < max_new_tokens and (not tokens or tokens[-1] != EOS_ID):
        tokens.append(token_at(request_seed, prompt_length + len(tokens)))
    return tokens


def step_reason(request: DecodeRequest, rule: StepRule, new: list[int]) -> FinishReason | None:
    """Return why a step ends with the last of its new tokens; a token's confidence is its number."""
    start = len(request.token_ids) if request.step_start is None else request.step_start
    n_tokens = len(request.token_ids) - start + len(new)
    cut, confidences = rule.confidence, [*request.confidences, *new]
    if cut and n_tokens >= cut.window and np.mean(confidences[-cut.window :]) < cut.least:
        return FinishReason.LOW_CONFIDENCE
    if n_tokens >= rule.min_tokens and any(delimiter in str(new[-1]) for delimiter in rule.delimiters):
        return FinishReason.STEP
    return FinishReason.STEP_LENGTH if n_tokens == rule.max_tokens else None


@dataclass
class ToyDecoder:
    """Steps like the real decoder.

    Attributes:
        capacity: trajectories stepped together.
        delay_s: seconds a step takes.
        die_after: the process ends once so many tokens were committed, None never.
        die_once: file that the first to die leaves, so that its replacement lives.
    """

    capacity: int = 4
    delay_s: float = 0.0
    die_after: int | None = None
    die_once: Path | None = None

    def __post_init__(self) -> None:
        self.committed = 0
        self.live: dict[str, tuple[DecodeRequest, list[int]]] = {}
        self.cancelled: set[str] = set()

    @property
    def is_idle(self) -> bool:
        return not self.live

    def submit(self, request: DecodeRequest) -> None:
        if len(request.token_ids) >= MAX_CONTEXT:
            raise ProblemError(f"{request.candidate_id}: {len(request.token_ids)} prompt tokens are too many")
        assert request.candidate_id not in self.live
        self.live[request.candidate_id] = (request, [])

    def cancel(self, candidate_id: str) -> None:
        self.cancelled.add(candidate_id)

    def close_scope(self, scope: str) -> None:
        pass

    def statistics(self) -> dict[str, float]:
        return {"committed_tokens": self.committed}

    def change_drafter(self, change: Callable[[Drafter], Drafter]) -> None:
        raise ConfigError("toys do not draft")

    def routing_report(self) -> RoutingReport:
        return RoutingReport()

    def step(self) -> list[Chunk]:
        time.sleep(self.delay_s)
        chunks = []
        for candidate_id in list(self.live)[: self.capacity]:
            if candidate_id in self.cancelled:
                chunks.append(self._chunk(candidate_id, [], FinishReason.CANCELLED))
            else:
                chunks.append(self._advance(candidate_id))
        return chunks

    def _advance(self, candidate_id: str) -> Chunk:
        request, output = self.live[candidate_id]
        first = len(request.token_ids) + len(output)
        tokens: list[int] = []
        reason = None
        for position in range(first, first + 1 + first % 3):  # like accepted drafts: 1 to 3 tokens a step
            tokens.append(token_at(request.seed, position))
            if tokens[-1] == EOS_ID:
                reason = FinishReason.EOS
            elif position + 1 == request.prompt_length + request.law.max_new_tokens:
                reason = FinishReason.LENGTH
            if reason is None and request.step is not None:
                reason = step_reason(request, request.step, [*output, *tokens])
            if reason is not None:
                break
        self.committed += len(tokens)
        self._die_if_due()
        return self._chunk(candidate_id, tokens, reason)

    def _chunk(self, candidate_id: str, tokens: list[int], reason: FinishReason | None) -> Chunk:
        request, output = self.live[candidate_id]
        start = len(request.token_ids) + len(output)
        output.extend(tokens)
        if reason is not None:
            del self.live[candidate_id]
        values = np.asarray(tokens, np.float32)
        return Chunk(candidate_id, start, np.asarray(tokens, np.int32), -values, values, values, 1, 0, reason)

    def _die_if_due(self) -> None:
        if self.die_after is None or self.committed < self.die_after:
            return
        if self.die_once is not None:
            if self.die_once.exists():
                return
            self.die_once.touch()
        os._exit(1)


class ToyTokenizer:
    """One character a token."""

    chat_template = None

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) % 97 + 1 for character in text]}

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> str:
        raise NotImplementedError

    def decode(self, token_ids: Any, **options: Any) -> str:
        return " ".join(str(token) for token in token_ids if token != EOS_ID)


def toy_engine(config: EngineConfig, log: Any, **options: Any) -> Engine:
    """Make an engine of a `ToyDecoder`; `options` are the decoder's."""
    return Engine(
        decoder=ToyDecoder(capacity=config.max_batch, **options),
        replica=None,
        tokenizer=ToyTokenizer(),
        fingerprint="toy",
        weights_id="toy",
        tokenizer_id="characters",
        numerics="bitwise",
        dtype="float32",
        max_context=MAX_CONTEXT,
        prepare_change=lambda change: lambda drafter: drafter,
    )
