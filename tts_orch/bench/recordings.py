"""Recordings of the benchmark's workloads: made once by plain keyed decoding, then read from their folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tts_orch.bench.decoding import new_decoder, request
from tts_orch.bench.workloads import Prompt
from tts_orch.config import EngineConfig
from tts_orch.engine.target import Target
from tts_orch.records import DecodeRequest, SamplingParams
from tts_orch.replay.recorder import RecordingDrafter
from tts_orch.replay.recording import Recording

__all__ = ["difference", "first_tokens", "record", "requests"]

_BATCH: Final = 16


def requests(prompts: Sequence[Prompt], law: SamplingParams, trajectories: int, seed: int) -> list[DecodeRequest]:
    """Return the requests of so many trajectories of every prompt."""
    return [request(prompt, index, law, seed, prompt.problem_id) for prompt in prompts for index in range(trajectories)]


def record(target: Target, config: EngineConfig, wanted: Sequence[DecodeRequest]) -> Recording:
    """Decode requests of one law without drafts and return what each token was drawn from."""
    recorder = RecordingDrafter()
    decoder = new_decoder(target, recorder, config.model_copy(update={"max_nodes": 0}), _BATCH)
    for one in wanted:
        decoder.submit(one)
    while not decoder.is_idle:
        decoder.step()
    return recorder.recording(
        wanted[0].law,
        vocabulary_size=target.vocab_size,
        max_context=target.max_context,
        weights_id=target.weights_id,
        numerics=target.numerics,
        fingerprint=target.fingerprint,
    )


def difference(recording: Recording, target: Target, wanted: Sequence[DecodeRequest]) -> str:
    """Return what has changed since a recording was made, empty if these requests would give the same one again."""
    recorded = {one.name: one for one in recording.trajectories}
    both = [(one, recorded[one.candidate_id]) for one in wanted if one.candidate_id in recorded]
    is_same = {
        "the target": (recording.weights_id, recording.fingerprint) == (target.weights_id, target.fingerprint),
        "the sampling law": all(one.law == recording.law for one in wanted),
        "the problems": len(both) == len(recorded) == len(wanted),
        "the prompts": all(np.array_equal(one.token_ids, other.prompt) for one, other in both),
        "the seed": all(one.seed == other.seed for one, other in both),
    }
    return ", ".join(what for what, same in is_same.items() if not same)


def first_tokens(recording: Recording, n: int) -> Recording:
    """Return what would have been recorded with a length limit of at most `n` output tokens."""
    cut = [
        replace(one, tokens=one.tokens[:n], law_ids=one.law_ids[:n], law_probs=one.law_probs[:n])
        for one in recording.trajectories
    ]
    law = replace(recording.law, max_new_tokens=min(n, recording.law.max_new_tokens))
    return replace(recording, law=law, trajectories=cut)
