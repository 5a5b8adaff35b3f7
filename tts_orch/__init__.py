"""Test-time scaling over Ray with lossless speculative decoding.

    from tts_orch import MajorityVote, Orchestrator

    with Orchestrator("smollm2") as orchestrator:
        print(orchestrator.search("What is 17 * 23?", MajorityVote(n=16)).answer)

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tts_orch.config import (
        DVTS,
        BeamSearch,
        BestOfN,
        BudgetConfig,
        BudgetForcing,
        EngineConfig,
        LawConfig,
        MajorityVote,
        ParticleFiltering,
        Rebase,
        RewardConfig,
    )
    from tts_orch.errors import (
        ClusterError,
        ConfigError,
        OrchestratorError,
        OutOfMemoryError,
        PlacementError,
        ProblemError,
        RunError,
        RunFolderError,
        StoreError,
        TargetError,
        UserError,
        WorkerLostError,
    )
    from tts_orch.orchestrator import Orchestrator
    from tts_orch.placement_config import PlacementConfig
    from tts_orch.records import Candidate, FinishReason, Problem, SamplingParams, SearchResult
    from tts_orch.stopping_config import AdaptiveConsistency, DeepConf, DeepConfOffline, EarlyStopping
    from tts_orch.task_config import TaskConfig

__all__ = [
    "DVTS",
    "AdaptiveConsistency",
    "BeamSearch",
    "BestOfN",
    "BudgetConfig",
    "BudgetForcing",
    "Candidate",
    "ClusterError",
    "ConfigError",
    "DeepConf",
    "DeepConfOffline",
    "EarlyStopping",
    "EngineConfig",
    "FinishReason",
    "LawConfig",
    "MajorityVote",
    "Orchestrator",
    "OrchestratorError",
    "OutOfMemoryError",
    "ParticleFiltering",
    "PlacementConfig",
    "PlacementError",
    "Problem",
    "ProblemError",
    "Rebase",
    "RewardConfig",
    "RunError",
    "RunFolderError",
    "SamplingParams",
    "SearchResult",
    "StoreError",
    "TargetError",
    "TaskConfig",
    "UserError",
    "WorkerLostError",
]

_HOMES = {
    "tts_orch.config": (
        "BeamSearch",
        "BestOfN",
        "BudgetConfig",
        "BudgetForcing",
        "DVTS",
        "EngineConfig",
        "LawConfig",
        "MajorityVote",
        "ParticleFiltering",
        "Rebase",
        "RewardConfig",
    ),
    "tts_orch.orchestrator": ("Orchestrator",),
    "tts_orch.placement_config": ("PlacementConfig",),
    "tts_orch.records": ("Candidate", "FinishReason", "Problem", "SamplingParams", "SearchResult"),
    "tts_orch.stopping_config": ("AdaptiveConsistency", "DeepConf", "DeepConfOffline", "EarlyStopping"),
    "tts_orch.task_config": ("TaskConfig",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF.get(name, "tts_orch.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not (Path(__file__).parent / "policies").is_dir():  # a checkout without symbolic links has two text files there
    raise ImportError(
        "tts_orch/actors and tts_orch/policies must be links to ../actors and ../policies; "
        "on Windows: git config core.symlinks true, then check out again"
    )
