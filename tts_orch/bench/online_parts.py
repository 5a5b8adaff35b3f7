"""The parts of the benchmark that need the target: recordings, real acceptance runs, timing."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

import torch

from tts_orch.bench.methods import METHODS, ablations, chosen_methods, learns_from_rejected, trained_methods
from tts_orch.bench.offline_cells import SIBLINGS
from tts_orch.bench.offline_parts import OfflineParts
from tts_orch.bench.plan import ALTERNATING, BenchPlan, timing_cells
from tts_orch.bench.real_cells import RealRun, depth_for
from tts_orch.bench.recordings import difference, first_tokens, record, requests
from tts_orch.bench.replay_cells import replayed
from tts_orch.bench.results import ResultFolder
from tts_orch.bench.timing_cells import timing_row
from tts_orch.bench.trees import equal_tree
from tts_orch.bench.workloads import RANDOM_TEXT, Prompt, random_prompts, read_prompts
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.engine.target import Target, load_target
from tts_orch.engine.threads import n_threads, reserve_for_kernels
from tts_orch.errors import ConfigError
from tts_orch.json_lines import JsonObject
from tts_orch.records import DecodeRequest, SamplingParams
from tts_orch.replay.recording import Recording
from tts_orch.tasks.prompts import Tokenizer

__all__ = ["OnlineParts"]

_COST_BATCH: Final = 16
_TIMED: Final = next(method for method in METHODS if method.name == "stand_budget_in_full")


@dataclass(frozen=True)
class OnlineParts:
    """Runs parts on the target of a plan.

    Args:
        plan: what to run.
        folder: where recordings go.
        report: told of every cell.
    """

    plan: BenchPlan
    folder: ResultFolder
    report: Callable[[str], None]

    @cached_property
    def config(self) -> EngineConfig:
        """Settings of decoders, drafting aside."""
        return EngineConfig(target=self.plan.target, drafter="none", threads=self.plan.threads)

    @cached_property
    def target(self) -> Target:
        """The loaded target."""
        target = load_target(self.config)
        if target.numerics == "bitwise":
            reserve_for_kernels()
        return target

    def prompts(self, workload: str, n: int) -> list[Prompt]:
        """Return the first prompts of a workload."""
        if workload == RANDOM_TEXT:
            return random_prompts(n, self.target.vocab_size)
        return read_prompts(workload, self.plan.data, n, cast(Tokenizer, self.target.tokenizer))

    def record(self) -> JsonObject:
        """Make the recordings that are not there yet or no longer right, and describe where they were made."""
        plan = self.plan
        rows = [self._record(workload, t) for t in plan.temperatures for workload in plan.workloads]
        rows.append(self._record(ALTERNATING, plan.highest_temperature))
        curve = self.target.measure_cost(_COST_BATCH).table()
        return {"rows": rows, "cost_curve": curve, **self._device()}

    def _record(self, workload: str, temperature: float) -> JsonObject:
        path, wanted = self.folder.recording(self.plan, workload, temperature), self._wanted(workload, temperature)
        recording = Recording.load(path) if path.is_file() else None
        changed = difference(recording, self.target, wanted) if recording else ""
        if changed:
            self.report(f"{path.name}: recorded again, since {changed} changed")
        if recording is None or changed:
            recording = record(self.target, self.config, wanted)
            recording.save(path)
        n_tokens = sum(len(one.tokens) for one in recording.trajectories)
        self.report(f"{path.name}: {len(recording.trajectories)} trajectories, {n_tokens:,} tokens")
        n_problems = len(recording.problem_ids)
        return {
            "workload": workload,
            "temperature": temperature,
            "problems": n_problems,
            "trajectories": len(recording.trajectories) // n_problems,
            "tokens": n_tokens,
        }

    def _wanted(self, workload: str, temperature: float) -> list[DecodeRequest]:
        """Return what the recording of a workload is made of."""
        plan = self.plan
        if workload == ALTERNATING:
            prompts = self.prompts(plan.workloads[0], plan.alternating_problems)
            n_trajectories, n_tokens = plan.alternating_trajectories, plan.alternating_tokens
        else:
            prompts = self.prompts(workload, plan.problems_per_workload)
            n_trajectories, n_tokens = plan.trajectories if temperature > 0 else 1, plan.max_new_tokens
        law = SamplingParams(temperature=temperature, max_new_tokens=n_tokens)
        return requests(prompts, law, n_trajectories, plan.seed)

    def _device(self) -> JsonObject:
        target = self.target
        return {
            "target": self.plan.target,
            "weights_id": target.weights_id,
            "device": f"{target.device} ({platform.machine()}, {n_threads()} threads)",
            "dtype": str(target.dtype).removeprefix("torch."),
            "numerics": target.numerics,
            "torch": torch.__version__,
        }

    def real(self) -> JsonObject:
        """Return acceptance of what learns from rejected nodes, and of both verification rules, by real decoding."""
        rows, sibling_rows = [], []
        for workload in self.plan.real:
            prompts = self.prompts(workload, self.plan.real_problems)
            rows += self._real_methods(workload, prompts)
            sibling_rows += self._real_siblings(workload, prompts)
        return {"rows": rows, "siblings": sibling_rows, **self._device()}

    def _real_methods(self, workload: str, prompts: Sequence[Prompt]) -> list[JsonObject]:
        """Return a row a method on the same problems: real where replay is not exact, replayed where it is."""
        plan, offline = self.plan, OfflineParts(self.plan, self.folder, self.report)
        ablated = [method for method in ablations() if method.name == "from_rejected"]
        methods = [*chosen_methods(plan.methods), *trained_methods(plan.drafters), *ablated]
        cells = [
            offline.cell(method, (workload,), plan.highest_temperature, plan.compared_nodes)
            for method in methods
            if method.settings["drafter"] != "none"
        ]
        recording, rows = self._cut(workload, prompts), []
        for cell in cells:
            is_real = not cell.config.drafters and learns_from_rejected(cell.config)
            figures = self._run.row(cell.config, prompts) if is_real else replayed(cell, recording)
            rows.append({**cell.key, "is_real": is_real, **figures})
            how = "real" if is_real else "replay"
            self.report(f"{workload}, {cell.key['label']}, {how}: tau {figures['tau']:.2f}")
        return rows

    def _cut(self, workload: str, prompts: Sequence[Prompt]) -> Recording:
        """Return what the recording of a workload has of a real run's trajectories.

        Raises:
            ConfigError: it was made of something else.
        """
        temperature = self.plan.highest_temperature
        path = self.folder.recording(self.plan, workload, temperature)
        recording = Recording.load(path)
        changed = difference(recording, self.target, self._wanted(workload, temperature))
        if changed:
            raise ConfigError(f"{path}: {changed} changed since it was recorded; run the part `record` again")
        problem_ids = [prompt.problem_id for prompt in prompts]
        return first_tokens(recording.of_problems(problem_ids), self.plan.real_tokens)

    def _real_siblings(self, workload: str, prompts: Sequence[Prompt]) -> list[JsonObject]:
        """Return tau of both verification rules on the same trees of equal siblings."""
        rows = []
        for siblings in SIBLINGS:
            depth = depth_for(siblings)
            row: JsonObject = {"workload": workload, "siblings": siblings, "depth": depth}
            for verification in ("keyed", "rejection"):
                tree = equal_tree(self.folder.trees, siblings, depth)
                settings = {"verification": verification, "draft_tree": tree, "node_budget": False}
                config = DraftingConfig(max_nodes=self.plan.compared_nodes, **settings)
                row[f"tau_{verification}"] = self._run.row(config, prompts)["tau"]
            rows.append(row)
            self.report(f"{workload}, {siblings} siblings: {row['tau_keyed']:.2f} and {row['tau_rejection']:.2f}")
        return rows

    @cached_property
    def _run(self) -> RealRun:
        plan = self.plan
        law = SamplingParams(temperature=plan.highest_temperature, max_new_tokens=plan.real_tokens)
        cost_model = self.target.measure_cost(1)
        return RealRun(self.target, self.config, cost_model, law, plan.trajectories, plan.seed)

    def timing(self) -> JsonObject:
        """Return speeds with the node budget against plain decoding, a row a cell."""
        plan, rows = self.plan, []
        for cell in timing_cells(plan):
            law = SamplingParams(temperature=cell.temperature, max_new_tokens=plan.timing_tokens)
            prompts = self.prompts(cell.workload, plan.pairs)
            drafting = _TIMED.config(plan.compared_nodes, {})
            rows.append(timing_row(self.target, self.config, drafting, cell, prompts, law, plan.seed, self.report))
        return {"rows": rows, **self._device()}
