"""What differs when the command is the entry point of a Ray job (`ray job submit`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tts_orch.errors import ConfigError

__all__ = ["check_out", "is_ray_job"]

_SET_FOR_JOBS: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def is_ray_job() -> bool:
    """Return whether a Ray job started this process: then its working directory is a copy that vanishes with the job."""
    return _SET_FOR_JOBS in os.environ


def check_out(out: Path) -> None:
    """Refuse a folder for results that would vanish with the job.

    Raises:
        ConfigError: a relative path inside a Ray job.
    """
    if is_ray_job() and not out.is_absolute():
        raise ConfigError(
            f"out: {out} is relative, and the working directory of a Ray job vanishes with it; "
            "give --out an absolute path on the head node or on a disk that all nodes share"
        )
