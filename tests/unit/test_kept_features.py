"""Hidden states of recorded trajectories: computed once for all who read the same layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.exactness.decoding import toy_target
from tests.recordings import laws
from tts_orch.replay import kept_features
from tts_orch.replay.kept_features import KeptFeatures
from tts_orch.replay.recording import RecordedTrajectory
from tts_orch.replay.teacher_forcing import forced_features


def test_states_are_computed_once_for_each_choice_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    target, computed = toy_target(), []

    def counted(*arguments: object) -> torch.Tensor:
        computed.append(arguments)
        return forced_features(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_features, "forced_features", counted)
    prompt, tokens = np.arange(1, 6, dtype=np.int32), np.arange(3, 10, dtype=np.int32)
    one = RecordedTrajectory("a/0", "a", 0, 1, prompt, tokens, *laws(len(tokens), 0))
    kept = KeptFeatures(target)
    for layers in ((-1,), (-1,), (0, -1), (-1,)):
        expected = forced_features(target, prompt, tokens, layers)
        torch.testing.assert_close(kept.of_layers(layers)(one), expected, rtol=0, atol=0)
    assert len(computed) == 2
