"""What parts of a benchmark need, looked at before the target is loaded, which takes a while."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from pathlib import Path

from tts_orch.bench.methods import chosen_methods
from tts_orch.bench.plan import ALTERNATING, BenchPlan, Part
from tts_orch.bench.results import ResultFolder
from tts_orch.bench.workloads import RANDOM_TEXT, find_problems
from tts_orch.errors import ConfigError
from tts_orch.figures import load_figures
from tts_orch.tasks.problems import read_problems

__all__ = ["check_recordings", "check_settings"]


def check_settings(plan: BenchPlan, parts: Collection[Part]) -> None:
    """Check the names of methods and workloads, the problem files, and that plots can be drawn.

    Raises:
        UserError: something is not there.
    """
    load_figures()
    chosen_methods(plan.methods)
    workloads: Mapping[Part, Iterable[str]] = {"record": plan.workloads, "real": plan.real, "timing": plan.timed}
    for workload in dict.fromkeys(name for part in parts for name in workloads.get(part, ())):
        if workload != RANDOM_TEXT:
            read_problems(find_problems(workload, plan.data))


def check_recordings(plan: BenchPlan, parts: Collection[Part], folder: ResultFolder) -> None:
    """Check that what is replayed was recorded, or is about to be.

    Raises:
        ConfigError: it was not.
    """
    needed = _recordings(plan, parts, folder)
    if "record" in parts or not needed:
        return
    missing = [path for path in needed if not path.is_file()]
    if missing or "record" not in folder.read():
        what = missing[0] if missing else folder.path
        raise ConfigError(f"{what}: nothing was recorded there; run the part `record` first, with the same sizes")


def _recordings(plan: BenchPlan, parts: Collection[Part], folder: ResultFolder) -> list[Path]:
    hottest = (plan.highest_temperature,)
    at_hottest = tuple(product(plan.workloads, hottest))
    needed: Mapping[Part, Iterable[tuple[str, float]]] = {
        "replay": product(plan.workloads, plan.temperatures),
        "ablation": at_hottest,
        "overlap": at_hottest,
        "coupling": at_hottest,
        "alternation": product((ALTERNATING,), hottest),
        "real": product(plan.real, hottest),
    }
    return [folder.recording(plan, *place) for part in parts for place in needed.get(part, ())]
