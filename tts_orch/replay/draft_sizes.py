"""How fast a target would decode with draft vocabularies of several sizes: accepted tokens by replay, seconds by the clock.

`tau / (T_verify + T_draft)`: texts are drafted as if the target wrote them at temperature 0. Coverage and operations only guess
at this (arXiv 2603.05210): what a token outside costs depends on where it stands, and a drafted level is bound by memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tts_orch.config import EngineConfig
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.engine.target import Target
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import Features
from tts_orch.records import IntArray, SamplingParams
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recording import RecordedTrajectory, Recording
from tts_orch.replay.replayer import replay
from tts_orch.replay.teacher_forcing import forced_features

__all__ = ["SizeSpeed", "WrittenText", "measured_sizes"]


class WrittenText(NamedTuple):
    """A text that is drafted.

    Attributes:
        prompt: `[p]` tokens.
        output: `[n]` tokens.
    """

    prompt: IntArray
    output: IntArray


class SizeSpeed(NamedTuple):
    """What was measured of one size.

    Attributes:
        size: tokens of the draft vocabulary.
        tau: tokens of a verify step, the one that needs no draft included.
        level_seconds: a drafted level, the median over the steps.
        verify_seconds: a verify step without the drafting.
        tokens_per_second: what both give,
        low: what they give in a step that was drafted as slowly as the slowest quarter,
        high: and as fast as the fastest quarter. So a busy machine shows.
    """

    size: int
    tau: float
    level_seconds: float
    verify_seconds: float
    tokens_per_second: float
    low: float
    high: float


def measured_sizes(
    networks: Mapping[int, HeadNetwork],
    texts: Sequence[WrittenText],
    target: Target,
    config: EngineConfig,
    on_text: Callable[[], object] = lambda: None,
) -> list[SizeSpeed]:
    """Draft texts with every size in turn, so that what else the machine does meets all of them.

    Args:
        networks: one head by the size of its draft vocabulary.
        texts: that the head has not learned from.
        target: of the heads.
        config: depth, width and nodes of the trees.
        on_text: called for every text that a size is done with.
    """
    drafters = {size: MeasuredDrafter(NeuralDrafter(network, config)) for size, network in networks.items()}
    (layers,) = {network.feature_layers for network in networks.values()}
    for text in texts:
        recording = _recording(text, target)
        features = forced_features(target, text.prompt, text.output, layers)
        for drafter in drafters.values():
            _draft(recording, drafter, config.max_nodes, features)
            on_text()
    verify_seconds = float(target.measure_cost(1).seconds(config.max_nodes + 1))
    return [_speed(size, drafter, verify_seconds, config.draft_depth) for size, drafter in drafters.items()]


def _draft(recording: Recording, drafter: MeasuredDrafter, n_nodes: int, features: Features) -> None:
    for _ in replay(recording, drafter, FixedSize(n_nodes), features=lambda _: features):
        pass


def _recording(text: WrittenText, target: Target) -> Recording:
    """Return a text as a recording that tells no laws: heads do not learn from them."""
    laws = np.zeros((len(text.output), 1), np.int32), np.zeros((len(text.output), 1), np.float32)
    return Recording(
        law=SamplingParams(temperature=0, max_new_tokens=len(text.output)),
        vocabulary_size=target.vocab_size,
        max_context=target.max_context,
        weights_id=target.weights_id,
        numerics=target.numerics,
        fingerprint=target.fingerprint,
        prompt_laws={},
        trajectories=[RecordedTrajectory("text/0", "text", 0, 0, *text, *laws)],
    )


def _speed(size: int, drafter: MeasuredDrafter, verify_seconds: float, depth: int) -> SizeSpeed:
    tau = drafter.acceptance.tau
    low, middle, high = (drafter.drafting.quantile(share) for share in (0.75, 0.5, 0.25))
    rates = [tau / (verify_seconds + seconds) for seconds in (middle, low, high)]
    return SizeSpeed(size, tau, middle / depth, verify_seconds, *rates)
