"""What the target says on each workload, and the hidden states that heads read, kept: every drafter is judged by the same."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Final

import safetensors.torch

from tts_orch.atomic_file import write_atomically
from tts_orch.bench.recordings import difference, record, requests
from tts_orch.bench.workloads import Prompt, read_prompts
from tts_orch.config import EngineConfig
from tts_orch.engine.target import Target, load_target
from tts_orch.errors import RunFolderError
from tts_orch.records import SamplingParams
from tts_orch.replay.recording import Recording
from tts_orch.replay.teacher_forcing import forced_features

__all__ = ["LAST_LAYER", "WORKLOADS", "Workshop", "loaded_target"]

WORKLOADS: Final = ("mt_bench", "gsm8k_test", "math500", "humaneval")
"""Chat, and three that reason or compute."""
LAST_LAYER: Final = (-1,)
"""What heads of EAGLE-2 and HASS read."""
_SEED: Final = 0


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

    def recorded(self, workload: str, temperature: float) -> Path:
        """Return the file of a workload's `Recording`, made if it is not there.

        Raises:
            RunFolderError: the recording is of other settings.
        """
        arguments = self.arguments
        size = f"{arguments.problems}x{arguments.tokens}"
        file: Path = arguments.out / "recordings" / f"{workload}-{temperature:g}-{size}-{arguments.dtype}.npz"
        prompts = self.prompts(workload, arguments.problems)
        wanted = requests(prompts, self.law(workload, temperature), 1, _SEED)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            record(self.target, self.config, wanted).save(file)
        changed = difference(Recording.load(file), self.target, wanted)
        if changed:
            raise RunFolderError(f"{file}: {changed} changed since; delete it, or take another --out")
        return file

    def states(self, recorded: Path, layers: tuple[int, ...]) -> Path:
        """Return the file of a recording's hidden states of some layers, by the name of a trajectory, made if it is not there."""
        ending = "" if layers == LAST_LAYER else f"-layers{'_'.join(map(str, layers))}"
        file = recorded.with_name(f"{recorded.stem}{ending}.safetensors")
        if not file.exists():
            states = {
                one.name: forced_features(self.target, one.prompt, one.tokens, layers).clone()
                for one in Recording.load(recorded).trajectories
            }
            write_atomically(file, safetensors.torch.save(states))
        return file


@cache
def loaded_target(name: str, dtype: str) -> Target:
    """Return a target, loaded once a process."""
    return load_target(EngineConfig(target=name, dtype=dtype, drafter="none"))
