"""Recordings of the benchmark's workloads: made once by plain keyed decoding, then read from their folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tts_orch.bench.decoding import new_decoder, request
from tts_orch.bench.workloads import Prompt
from tts_orch.config import EngineConfig
from tts_orch.engine.target import Target
from tts_orch.records import SamplingParams
from tts_orch.replay.recorder import RecordingDrafter
from tts_orch.replay.recording import Recording

__all__ = ["first_tokens", "record"]

_BATCH: Final = 16


def record(
    target: Target, config: EngineConfig, prompts: Sequence[Prompt], law: SamplingParams, trajectories: int, seed: int
) -> Recording:
    """Decode trajectories of every prompt without drafts and return what each token was drawn from."""
    recorder = RecordingDrafter()
    decoder = new_decoder(target, recorder, config.model_copy(update={"max_nodes": 0}), _BATCH)
    for prompt in prompts:
        for index in range(trajectories):
            decoder.submit(request(prompt, index, law, seed, prompt.problem_id))
    while not decoder.is_idle:
        decoder.step()
    return recorder.recording(
        law,
        vocabulary_size=target.vocab_size,
        max_context=target.max_context,
        weights_id=target.weights_id,
        numerics=target.numerics,
        fingerprint=target.fingerprint,
    )


def first_tokens(recording: Recording, n: int) -> Recording:
    """Return what would have been recorded with a length limit of at most `n` output tokens."""
    cut = [
        replace(one, tokens=one.tokens[:n], law_ids=one.law_ids[:n], law_probs=one.law_probs[:n])
        for one in recording.trajectories
    ]
    law = replace(recording.law, max_new_tokens=min(n, recording.law.max_new_tokens))
    return replace(recording, law=law, trajectories=cut)
