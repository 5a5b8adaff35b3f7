"""What the target says on each workload, and the hidden states that heads read, kept: every drafter is judged by the same."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import safetensors.torch
import torch

from tts_orch.atomic_file import write_atomically
from tts_orch.bench.recordings import difference, record, requests
from tts_orch.bench.workloads import Prompt, read_prompts
from tts_orch.config import EngineConfig
from tts_orch.engine.target import Target, load_target
from tts_orch.errors import RunFolderError
from tts_orch.records import SamplingParams
from tts_orch.replay.recording import RecordedTrajectory, Recording
from tts_orch.replay.teacher_forcing import forced_features

__all__ = ["WORKLOADS", "Recorded", "Workshop", "loaded_target"]

WORKLOADS: Final = ("mt_bench", "gsm8k_test", "math500", "humaneval")
"""Chat, and three that reason or compute."""
_LAYERS: Final = (-1,)
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Files of a recording.

    Attributes:
        place: where they are, without endings.
    """

    place: Path

    @property
    def trajectories(self) -> Path:
        """File of a `Recording`."""
        return self.place.with_name(f"{self.place.name}.npz")

    @property
    def states(self) -> Path:
        """File of the target's last hidden states, by the name of a trajectory."""
        return self.place.with_name(f"{self.place.name}.safetensors")


class Workshop:
    """The target and its recordings."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.config = EngineConfig(
            target=arguments.target, dtype=arguments.dtype, drafter="none", threads=arguments.threads
        )

    @property
    def target(self) -> Target:
        """The loaded target."""
        return loaded_target(self.config.target, self.config.dtype)

    def prompts(self, workload: str, n: int) -> list[Prompt]:
        """Return the first prompts of a workload."""
        return read_prompts(workload, self.arguments.data, n, self.target.tokenizer)

    def law(self, workload: str, temperature: float) -> SamplingParams:
        """Return how a workload is sampled."""
        return SamplingParams(temperature=temperature, max_new_tokens=self.arguments.tokens)

    def recorded(self, workload: str, temperature: float) -> Recorded:
        """Return the files of a workload's recording, made if they are not there.

        Raises:
            RunFolderError: the recording is of other settings.
        """
        arguments = self.arguments
        size = f"{arguments.problems}x{arguments.tokens}"
        name = f"{workload}-{temperature:g}-{size}-{arguments.dtype}"
        files = Recorded(arguments.out / "recordings" / name)
        prompts = self.prompts(workload, arguments.problems)
        wanted = requests(prompts, self.law(workload, temperature), 1, _SEED)
        if not files.trajectories.exists():
            files.trajectories.parent.mkdir(parents=True, exist_ok=True)
            record(self.target, self.config, wanted).save(files.trajectories)
        recording = Recording.load(files.trajectories)
        changed = difference(recording, self.target, wanted)
        if changed:
            raise RunFolderError(f"{files.trajectories}: {changed} changed since; delete it, or take another --out")
        if not files.states.exists():
            states = {one.name: self._states(one) for one in recording.trajectories}
            write_atomically(files.states, safetensors.torch.save(states))
        return files

    def _states(self, one: RecordedTrajectory) -> torch.Tensor:
        return forced_features(self.target, one.prompt, one.tokens, _LAYERS).clone()


@cache
def loaded_target(name: str, dtype: str) -> Target:
    """Return a target, loaded once a process."""
    return load_target(EngineConfig(target=name, dtype=dtype, drafter="none"))
