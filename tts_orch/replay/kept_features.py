"""Hidden states of recorded trajectories, computed once however many drafters read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import load_file, save_file
from torch import Tensor

from tts_orch.engine.target import Target
from tts_orch.replay.recording import RecordedTrajectory
from tts_orch.replay.replayer import FeaturesOf
from tts_orch.replay.teacher_forcing import forced_features

__all__ = ["KeptFeatures"]

_NAME = "features"


class KeptFeatures:
    """Computes hidden states when they are first asked for, and keeps them on disk as long as it lives.

    Args:
        target: computes them.

    Attributes:
        target: the same.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._folder = TemporaryDirectory(prefix="tts-orch-")
        self._files: dict[tuple[str, Sequence[int]], Path] = {}

    def of_layers(self, layers: tuple[int, ...]) -> FeaturesOf:
        """Return what gives the hidden states of some layers, as `Drafter.feature_layers` numbers them."""

        def features(one: RecordedTrajectory) -> Tensor:
            file = self._files.get((one.name, layers))
            if file is not None:
                return load_file(file)[_NAME]
            computed = forced_features(self.target, one.prompt, one.tokens, layers)
            file = Path(self._folder.name) / f"{len(self._files)}.safetensors"
            save_file({_NAME: computed.contiguous()}, file)
            self._files[one.name, layers] = file
            return computed

        return features
