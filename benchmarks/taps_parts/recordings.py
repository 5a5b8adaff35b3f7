"""What the target says on each workload, recorded once: every drafter is judged by the same tokens."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import torch

from tts_orch.bench.recordings import difference, record, requests
from tts_orch.bench.workloads import read_prompts
from tts_orch.config import EngineConfig
from tts_orch.engine.target import Target, load_target
from tts_orch.errors import RunFolderError
from tts_orch.records import SamplingParams
from tts_orch.replay.recording import RecordedTrajectory, Recording
from tts_orch.replay.teacher_forcing import forced_features

__all__ = ["WORKLOADS", "Workshop"]

WORKLOADS: Final = ("mt_bench", "gsm8k_test", "math500", "humaneval")
"""Chat, and three that reason or compute."""
_LAYERS: Final = (-1,)
_SEED: Final = 0


class Workshop:
    """The target, its recordings, and the hidden states that heads read."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.config = EngineConfig(target=arguments.target, drafter="none", threads=arguments.threads)

    @property
    def target(self) -> Target:
        """The loaded target."""
        return _target(self.config.target, self.config.threads)

    def law(self, temperature: float) -> SamplingParams:
        """Return the sampling law at a temperature."""
        return SamplingParams(temperature=temperature, max_new_tokens=self.arguments.tokens)

    def recording(self, workload: str, temperature: float) -> Recording:
        """Return a recording, made if its file is not there.

        Raises:
            RunFolderError: the file is of other settings.
        """
        place: Path = self.arguments.out / "recordings" / f"{workload}-{temperature:g}.npz"
        prompts = read_prompts(workload, self.arguments.data, self.arguments.problems, self.target.tokenizer)
        wanted = requests(prompts, self.law(temperature), 1, _SEED)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            record(self.target, self.config, wanted).save(place)
        recording = Recording.load(place)
        changed = difference(recording, self.target, wanted)
        if changed:
            raise RunFolderError(f"{place}: {changed} changed since; delete it, or take another --out")
        return recording

    def recordings(self) -> Iterator[tuple[str, float, Recording]]:
        """Yield every workload at every temperature."""
        for workload in self.arguments.workloads:
            for temperature in self.arguments.temperatures:
                yield workload, temperature, self.recording(workload, temperature)

    def features(self, recording: Recording) -> dict[str, torch.Tensor]:
        """Return the hidden states of all trajectories by name."""
        return {one.name: self._features(one) for one in recording.trajectories}

    def _features(self, one: RecordedTrajectory) -> torch.Tensor:
        return forced_features(self.target, one.prompt, one.tokens, _LAYERS)


@cache
def _target(name: str, threads: int | None) -> Target:
    return load_target(EngineConfig(target=name, drafter="none", threads=threads))
