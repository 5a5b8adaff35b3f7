"""What `tts-orch replay` does with its settings: recover the recording, replay the drafters, print their figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from tts_orch.atomic_file import write_atomically
from tts_orch.cli.acceptance_table import acceptance_tables
from tts_orch.cli.recovering import progress_bar, recorded_target, recovered, target_of
from tts_orch.config import DraftingConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.errors import ConfigError
from tts_orch.json_lines import JsonObject
from tts_orch.policies.drafting.draft_size import DraftSize, FixedSize
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.node_budget import NodeBudget
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.scopes import ScopeNames
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.problem_order import ProblemOrder
from tts_orch.replay.recording import Recording
from tts_orch.replay.recovery import FinishedRun
from tts_orch.replay.replayer import ScopeOf, replay

if TYPE_CHECKING:
    from tts_orch.replay.kept_features import KeptFeatures

__all__ = ["ReplaySettings", "replay_run"]


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What the command line says.

    Attributes:
        run: run folder.
        configs: by drafter, in order.
        lockstep: trajectories decoded together.
        order: of the problems.
        limit: problems to take, None for all.
        cost_curve: file of (rows, seconds) pairs for the node budget, None to measure the run's target.
        json_file: where the figures go besides.
    """

    run: Path
    configs: Mapping[str, DraftingConfig]
    lockstep: int
    order: ProblemOrder
    limit: int | None
    cost_curve: Path | None
    json_file: Path | None


def replay_run(settings: ReplaySettings) -> None:
    """Replay drafters on a run and print what became of their drafts.

    Raises:
        OrchestratorError: the run cannot be replayed.
    """
    console = Console()
    run = FinishedRun.read(settings.run, settings.limit)
    with progress_bar(console) as bar:
        recording = recovered(run, bar)
        features = _kept_features(run) if any(config.drafters for config in settings.configs.values()) else None
        measured = {name: _replay(settings, name, run, recording, features, bar) for name in settings.configs}
    for name, drafter in measured.items():
        if drafter.learns_from_rejected:
            console.print(
                f"{name} learns from rejected nodes, whose laws no recording has: a real run may accept more.",
                soft_wrap=True,
            )
    for table in acceptance_tables(measured, console.width):
        console.print(table)
    if settings.json_file:
        write_atomically(settings.json_file, json.dumps(_report(settings, recording, measured), indent=2) + "\n")


def _replay(
    settings: ReplaySettings,
    name: str,
    run: FinishedRun,
    recording: Recording,
    features: KeptFeatures | None,
    bar: Progress,
) -> MeasuredDrafter:
    config = settings.configs[name]
    measured = MeasuredDrafter(_drafter(config, recording.vocabulary_size, features))
    size = _size(settings, config, measured, run)
    scope_of = _scope_of(config, run, recording)
    passes = replay(
        recording,
        measured,
        size,
        lockstep=settings.lockstep,
        scope_of=scope_of,
        order=settings.order,
        features=features.of_layers(measured.feature_layers) if features else None,
    )
    task = bar.add_task(name, total=sum(len(one.tokens) for one in recording.trajectories))
    for steps in passes:
        bar.advance(task, sum(len(step.committed) for step in steps))
    return measured


def _drafter(config: DraftingConfig, vocabulary_size: int, features: KeptFeatures | None) -> Drafter:
    if features is None or not config.drafters:
        drafter = make_drafter(config, vocabulary_size=vocabulary_size)
    else:
        from tts_orch.drafters.loading import load_drafter

        drafter = load_drafter(config, features.target, is_shared=False)
    if drafter is None:
        raise ConfigError("drafter: there is nothing to replay without drafts; choose a drafter")
    return drafter


def _kept_features(run: FinishedRun) -> KeptFeatures:
    from tts_orch.replay.kept_features import KeptFeatures  # loads torch

    return KeptFeatures(recorded_target(run))


def _size(settings: ReplaySettings, config: DraftingConfig, drafter: Drafter, run: FinishedRun) -> DraftSize:
    if not config.node_budget:
        return FixedSize(config.max_nodes)
    if settings.cost_curve:
        costs = _read_costs(settings.cost_curve)
    else:
        costs = target_of(run.config.engine).measure_cost(settings.lockstep)
    return NodeBudget(drafter.priors, costs.seconds, config.max_nodes)


def _read_costs(path: Path) -> CostModel:
    """Read a cost curve.

    Raises:
        ConfigError: it is none.
    """
    try:
        rows, seconds = zip(*json.loads(path.read_bytes()), strict=True)
        curve = [(int(n), float(s)) for n, s in zip(rows, seconds, strict=True)]
    except (TypeError, ValueError):
        curve = []
    if not curve or curve != sorted(curve) or curve[0][0] < 1 or min(s for _, s in curve) <= 0:
        raise ConfigError(f"{path}: no cost curve; give a JSON list of [rows, seconds] pairs with growing rows")
    return CostModel([s for _, s in curve], [n for n, _ in curve])


def _scope_of(config: DraftingConfig, run: FinishedRun, recording: Recording) -> ScopeOf:
    """Return which statistics a trajectory shares; names of scopes are those of a run."""
    names = ScopeNames(config, recording.weights_id, tokenizer_id="")
    return lambda one: names.name(run.problems[one.problem_id], (one.index,), recording.law)


def _report(settings: ReplaySettings, recording: Recording, measured: Mapping[str, MeasuredDrafter]) -> JsonObject:
    return {
        "run": str(settings.run),
        "law": asdict(recording.law),
        "lockstep": settings.lockstep,
        "order": settings.order,
        "problems": len(recording.problem_ids),
        "trajectories": len(recording.trajectories),
        "drafters": {
            name: {
                "settings": settings.configs[name].model_dump(mode="json"),
                "learns_from_rejected": drafter.learns_from_rejected,
                **drafter.acceptance.to_json(),
                "drafting_us_a_step": drafter.drafting_us,
                "observing_us_a_step": drafter.observing_us,
            }
            for name, drafter in measured.items()
        },
    }
