"""Where, when and with what a part of a benchmark was measured."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Final

from tts_orch.bench.plan import BenchPlan
from tts_orch.json_lines import JsonObject

__all__ = ["provenance"]

_PACKAGES: Final = ("tts-orch", "torch", "transformers", "numba", "numpy")


def provenance(plan: BenchPlan) -> JsonObject:
    """Return date, machine, versions and all settings of a run."""
    return {
        "date": date.today().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {package: metadata.version(package) for package in _PACKAGES},
        "plan": plan.model_dump(mode="json"),
    }


def _processor() -> str:
    """Return the name of the CPU where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
