"""Solutions whose steps have labels: what a process reward model is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["GOOD", "LabelledSolution"]

GOOD = 0.5
"""A step with at least this label counts as good where a verdict is wanted."""


@dataclass(frozen=True, slots=True)
class LabelledSolution:
    """The steps of one solution.

    Attributes:
        problem_id: what it solves.
        steps: texts, without the delimiters between them.
        labels: a label in [0, 1] for each step, None where there is none.
    """

    problem_id: str
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LabelledSolution:
        """Return what `to_json` was called on.

        Raises:
            KeyError: a field is missing.
            TypeError: a field has another type.
        """
        return cls(values["problem_id"], tuple(values["steps"]), tuple(values["labels"]))
