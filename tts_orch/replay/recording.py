"""`Recording`: trajectories of the keyed mode with the raw law that each token was drawn from, in memory and as a file.

In keyed mode a trajectory does not depend on what was drafted, so what is recorded here is what any drafter would have
been judged by. Nothing here knows models or drafters.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, TypeAlias
from zipfile import BadZipFile

import numpy as np

from tts_orch.atomic_file import write_atomically
from tts_orch.errors import RunFolderError
from tts_orch.records import FloatArray, IntArray, SamplingParams

__all__ = ["Laws", "RecordedTrajectory", "Recording", "problem_and_index"]

SCHEMA_VERSION: Final = 1

Laws: TypeAlias = tuple[IntArray, FloatArray]
"""`[m, k]` most probable ids, most probable first, and their probabilities at T=1 before processors."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTrajectory:
    """One finished trajectory.

    Attributes:
        name: its id, unique in a recording.
        problem_id: trajectories of one problem have one prompt.
        index: its place among them.
        seed: trajectory seed.
        prompt: `[p]` prompt tokens.
        tokens: `[n]` output tokens, a final EOS included.
        law_ids, law_probs: `[n, k]` the raw law that each output token was drawn from.
    """

    name: str
    problem_id: str
    index: int
    seed: int
    prompt: IntArray
    tokens: IntArray
    law_ids: IntArray
    law_probs: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Trajectories of one target model under one sampling law.

    Attributes:
        law: sampling law of all of them.
        vocabulary_size: token ids are below it.
        max_context: positions that the target serves.
        weights_id: digest of its weights.
        numerics: `bitwise` or `fast`.
        fingerprint: digest of its numerics on the machine that recorded.
        prompt_laws: by problem, the laws `[p - 1, k]` after every prompt token but the last; rows of zeros for leading
            positions that were not computed, as for a template that other prompts begin with too.
        trajectories: those of one problem stand together, in order of their index.
    """

    law: SamplingParams
    vocabulary_size: int
    max_context: int
    weights_id: str
    numerics: str
    fingerprint: str
    prompt_laws: Mapping[str, Laws]
    trajectories: Sequence[RecordedTrajectory]

    @property
    def problem_ids(self) -> list[str]:
        """The problems, in order."""
        return list(dict.fromkeys(trajectory.problem_id for trajectory in self.trajectories))

    def of_problems(self, problem_ids: Sequence[str]) -> Recording:
        """Return what was recorded of some problems, in this order."""
        by_problem: dict[str, list[RecordedTrajectory]] = {problem_id: [] for problem_id in problem_ids}
        for one in self.trajectories:
            if one.problem_id in by_problem:
                by_problem[one.problem_id].append(one)
        return replace(
            self,
            prompt_laws={problem_id: self.prompt_laws[problem_id] for problem_id in problem_ids},
            trajectories=[one for of_problem in by_problem.values() for one in of_problem],
        )

    @classmethod
    def joined(cls, recordings: Sequence[Recording]) -> Recording:
        """Return recordings of different problems by one target, under one law, as a single one."""
        return replace(
            recordings[0],
            prompt_laws={name: laws for recording in recordings for name, laws in recording.prompt_laws.items()},
            trajectories=[one for recording in recordings for one in recording.trajectories],
        )

    def save(self, path: Path) -> None:
        """Write the recording to a file, which is replaced if it exists.

        Raises:
            RunError: it cannot be written.
        """
        prompts = {trajectory.problem_id: trajectory.prompt for trajectory in self.trajectories}
        laws = [self.prompt_laws[problem_id] for problem_id in prompts]
        laws += [(trajectory.law_ids, trajectory.law_probs) for trajectory in self.trajectories]
        tokens = [*prompts.values(), *(trajectory.tokens for trajectory in self.trajectories)]
        content = io.BytesIO()
        np.savez_compressed(
            content,
            header=np.frombuffer(json.dumps(self._header(prompts)).encode(), np.uint8),
            tokens=np.concatenate(tokens),
            law_ids=np.concatenate([ids for ids, _ in laws]),
            law_probs=np.concatenate([probs for _, probs in laws]),
        )
        write_atomically(path, content.getvalue())

    def _header(self, prompts: Mapping[str, IntArray]) -> dict[str, Any]:
        columns = ("name", "problem_id", "index", "seed")
        return {
            "schema_version": SCHEMA_VERSION,
            "law": asdict(self.law),
            **{name: getattr(self, name) for name in _SCALARS},
            "problems": [{"id": problem_id, "n_tokens": len(prompt)} for problem_id, prompt in prompts.items()],
            "trajectories": [
                {**{name: getattr(one, name) for name in columns}, "n_tokens": len(one.tokens)}
                for one in self.trajectories
            ],
        }

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a file of `save`.

        Raises:
            RunFolderError: it cannot be read, is no recording, or is of another version of the format.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                header = json.loads(arrays["header"].tobytes())
                version = header["schema_version"]
                if version == SCHEMA_VERSION:
                    return _assembled(header, arrays["tokens"], (arrays["law_ids"], arrays["law_probs"]))
        except OSError as error:
            raise RunFolderError(f"{path}: {error.strerror or 'not a recording'}; give a recording") from None
        except (BadZipFile, IndexError, KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{path}: not a recording ({error!r}); delete it to have it made again") from None
        raise RunFolderError(f"{path}: format {version}, not {SCHEMA_VERSION}; delete it to have it made again")


_SCALARS: Final = ("vocabulary_size", "max_context", "weights_id", "numerics", "fingerprint")


def _assembled(header: Mapping[str, Any], tokens: IntArray, laws: Laws) -> Recording:
    """Cut the arrays of a file into problems and trajectories."""
    problems, trajectories = header["problems"], header["trajectories"]
    token_pieces = _pieces(tokens, [one["n_tokens"] for one in (*problems, *trajectories)])
    law_lengths = [*(one["n_tokens"] - 1 for one in problems), *(one["n_tokens"] for one in trajectories)]
    law_pieces = list(zip(*(_pieces(column, law_lengths) for column in laws), strict=True))
    prompts = {one["id"]: prompt for one, prompt in zip(problems, token_pieces, strict=False)}
    recorded = []
    for i, one in enumerate(trajectories, start=len(problems)):
        place = (one["name"], one["problem_id"], one["index"], one["seed"])
        recorded.append(RecordedTrajectory(*place, prompts[one["problem_id"]], token_pieces[i], *law_pieces[i]))
    return Recording(
        law=SamplingParams(**{name: _as_tuples(value) for name, value in header["law"].items()}),
        **{name: header[name] for name in _SCALARS},
        prompt_laws=dict(zip(prompts, law_pieces, strict=False)),
        trajectories=recorded,
    )


def _pieces(column: np.ndarray[Any, Any], lengths: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    *ends, total = accumulate(lengths)
    if total != len(column):
        raise ValueError(f"{len(column)} rows instead of {total}")
    return np.split(column, ends)


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(part) for part in value) if isinstance(value, list) else value


def problem_and_index(name: str) -> tuple[str, int]:
    """Split the id of a candidate, `problem/0` or deeper in a search `problem/3.0.1`, into problem and last index."""
    problem_id, _, path = name.rpartition("/")
    return problem_id, int(path.rpartition(".")[2])
