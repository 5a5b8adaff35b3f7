"""Which candidates share draft statistics: the name of a candidate's scope. How long a scope lives is others' business."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from tts_orch.config import DraftingConfig
from tts_orch.records import Path, Problem, SamplingParams

__all__ = ["ScopeNames"]


@dataclass(frozen=True, slots=True)
class ScopeNames:
    """Names scopes: candidates of one name share statistics, others share nothing.

    Attributes:
        config: its `statistics_scope` says what is shared.
        weights_id: digest of the target's weights.
        tokenizer_id: digest of its vocabulary; the same ids must stand for the same texts.
        generation: another one begins with nothing, whatever a store remembers.
    """

    config: DraftingConfig
    weights_id: str
    tokenizer_id: str
    generation: str = "0"

    def name(self, problem: Problem, path: Path, law: SamplingParams) -> str:
        """Return the scope of the candidate at a path of a problem; it can be read, and is the same on every machine."""
        law_id = [_digest(law)] if self.config.stored_law == "processed" else []  # then a table serves one law only
        group = json.dumps([*self._group(problem, path), *law_id], ensure_ascii=False)
        return f"{self._model}{self.generation}/{group}"

    def owns(self, scope: str) -> bool:
        """Return whether a scope, of whatever run, is about this target."""
        return scope.startswith(self._model)

    @property
    def _model(self) -> str:
        return f"{self.weights_id}/{self.tokenizer_id}/"

    def _group(self, problem: Problem, path: Path) -> list[object]:
        sharing = self.config.statistics_scope
        match sharing:
            case "request":
                return [sharing, problem.id, list(path)]
            case "problem":
                return [sharing, problem.id]
            case "task":
                return [sharing, problem.domain]
            case "run":
                return [sharing]


def _digest(law: SamplingParams) -> str:
    return hashlib.blake2b(json.dumps(asdict(law), sort_keys=True).encode(), digest_size=8).hexdigest()
