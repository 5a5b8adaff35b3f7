"""What the target says on prompts of every domain: those of the narrow ones are read raw, and answered in a line."""

from __future__ import annotations

import dataclasses
from typing import Final

from taps_parts.recordings import Workshop

from tts_orch.bench.workloads import Prompt, find_problems
from tts_orch.records import SamplingParams
from tts_orch.replay.recording import Recording
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render
from vocabulary_parts.texts import END, NARROW, held_out_folder

__all__ = ["WORKLOADS", "VocabularyWorkshop"]

WORKLOADS: Final = ("mt_bench", "gsm8k_test", "humaneval", *NARROW)


class VocabularyWorkshop(Workshop):
    """The target and its recordings."""

    def prompts(self, workload: str, n: int) -> list[Prompt]:
        """Return the first prompts of a workload."""
        if workload not in NARROW:
            return super().prompts(workload, n)
        problems = read_problems(find_problems(workload, held_out_folder(self.arguments.out)))
        chosen = problems[:: len(problems) // n][:n] if n < len(problems) else problems
        return [Prompt(one.id, render(one, self.target.tokenizer, "raw")) for one in chosen]

    def law(self, workload: str, temperature: float) -> SamplingParams:
        """Return how a workload is sampled."""
        law = super().law(workload, temperature)
        return dataclasses.replace(law, stop_strings=(END,)) if workload in NARROW else law

    def recording(self, workload: str, temperature: float) -> Recording:
        """Return what the target said, once it said it."""
        return Recording.load(self.recorded(workload, temperature))
