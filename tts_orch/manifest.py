"""What a run folder belongs to: the problems, the law, the method and the model that fix every token in it.

Two runs of one identity decode the same candidates under keyed verification, candidates of the same law under rejection
verification, so one may go on where the other stopped. Everything else (drafter, workers, batch size, store) changes the
speed only and is no part of it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tts_orch.atomic_file import write_atomically
from tts_orch.config import RunConfig
from tts_orch.errors import RunFolderError
from tts_orch.records import Problem
from tts_orch.task_config import TaskConfig

__all__ = ["SCHEMA_VERSION", "Manifest"]

SCHEMA_VERSION: Final = 1

_PACKAGES: Final = ("tts-orch", "numba", "numpy", "ray", "torch", "transformers")
_REWARD_SETTINGS: Final = ("kind", "dtype", "max_context", "delimiters")  # its model is known by its weights


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of `manifest.json`.

    Attributes:
        created: when the folder was made, ISO 8601, UTC.
        versions: version of Python and of each package that the tokens depend on, of the latest run.
        settings: the settings that fix the tokens, by the name a user knows them by.
        target: what fixes them on the side of the models: digest of the target's weights, numerics, type, ...
        problems: (id, sha256 of the content) of each problem, in order.
        fingerprints: of every worker that ever took part, sorted.
        n_runs: runs there were in the folder, the latest one included.
        schema_version: version of this format and of the journal's.
    """

    created: str
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    problems: tuple[tuple[str, str], ...]
    target: Mapping[str, Any]
    fingerprints: tuple[str, ...]
    n_runs: int = 1
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def of(cls, config: RunConfig, problems: Sequence[Problem]) -> Manifest:
        """Return the manifest of a run whose target model is not loaded yet."""
        return cls(
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            versions=_versions(),
            settings=_settings(config),
            problems=tuple((problem.id, _digest(asdict(problem))) for problem in problems),
            target={},
            fingerprints=(),
        )

    @classmethod
    def read(cls, path: Path) -> Manifest | None:
        """Return the manifest of a folder, None where there is none.

        Raises:
            RunFolderError: it is damaged, or of another version of the format.
        """
        if not path.exists():
            return None
        try:
            values = json.loads(path.read_bytes())
            version = values["schema_version"]
            if version != SCHEMA_VERSION:
                raise RunFolderError(
                    f"{path}: format {version}, not {SCHEMA_VERSION}; give another --out to start afresh"
                )
            pairs = tuple((problem["id"], problem["sha256"]) for problem in values["problems"])
            return cls(**{**values, "problems": pairs, "fingerprints": tuple(values["fingerprints"])})
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{path}: damaged ({error!r}); restore it, or give another --out") from None

    def write(self, path: Path) -> None:
        """Replace the manifest of a folder."""
        problems = [{"id": problem_id, "sha256": digest} for problem_id, digest in self.problems]
        write_atomically(path, json.dumps({**asdict(self), "problems": problems}, indent=2) + "\n")

    def with_target(self, target: Mapping[str, Any], fingerprints: Sequence[str]) -> Manifest:
        """Return the manifest once the target model is loaded."""
        return replace(self, target=dict(target), fingerprints=tuple(sorted(set(fingerprints))))

    def continued_by(self, later: Manifest) -> Manifest:
        """Return the manifest of the folder after a later run in it."""
        return replace(
            later,
            created=self.created,
            problems=max(self.problems, later.problems, key=len),
            fingerprints=tuple(sorted({*self.fingerprints, *later.fingerprints})),
            n_runs=self.n_runs + 1,
        )

    def difference(self, later: Manifest) -> str | None:
        """Say in which part of the identity a later run differs, None when it may go on here.

        Problems may be added or left out at the end; a target that is not loaded yet differs in nothing.
        """
        was, is_now = {**self.settings, **self.target}, {**later.settings, **later.target}
        for name, value in is_now.items():
            if was.get(name) != value:
                return f"{name} is {was.get(name)!r} in this folder and {value!r} now"
        for number, (old, new) in enumerate(zip(self.problems, later.problems, strict=False), start=1):
            if old != new:
                edited = ", edited" if old[0] == new[0] else ""
                return f"problem {number} is {old[0]!r} in this folder and {new[0]!r} now{edited}"
        return None


def _versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), **packages}


def _settings(config: RunConfig) -> dict[str, Any]:
    """`n` is left out where a larger n only adds candidates."""
    method = config.method.model_dump(mode="json")
    if config.method.extendable:
        del method["n"]
    reward = config.reward.model_dump(mode="json") if config.reward else {}
    return {
        "seed": config.seed,
        "template": config.template,
        **{name: getattr(config, name) for name in TaskConfig.model_fields},
        "engine.verification": config.engine.verification,
        **{f"law.{name}": value for name, value in config.law.model_dump(mode="json").items()},
        **{f"method.{name}": value for name, value in method.items()},
        **{f"reward.{name}": reward.get(name) for name in _REWARD_SETTINGS},
    }


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
