"""Acceptance by real decoding: what learns from rejected nodes, and the two verification rules on the same trees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tts_orch.bench.decoding import decode, new_decoder, request
from tts_orch.bench.methods import scope_name
from tts_orch.bench.replay_cells import acceptance_row
from tts_orch.bench.workloads import Prompt
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.drafters.loading import load_drafter
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.target import Target
from tts_orch.json_lines import JsonObject
from tts_orch.records import SamplingParams
from tts_orch.replay.measured_drafter import MeasuredDrafter

__all__ = ["RealRun", "depth_for"]

_MOST_NODES = 80


class RealRun:
    """Decodes with drafts and tallies what becomes of them.

    Args:
        target: the model.
        config: of its decoders, drafting aside.
        cost_model: of the target, so that not every decoder measures its own.
        law: sampling law.
        trajectories: of each problem, one after another.
        seed: of the run.
    """

    def __init__(
        self,
        target: Target,
        config: EngineConfig,
        cost_model: CostModel,
        law: SamplingParams,
        trajectories: int,
        seed: int,
    ) -> None:
        self._target = target
        self._config = config
        self._cost_model = cost_model
        self._law = law
        self._trajectories = trajectories
        self._seed = seed

    def row(self, drafting: DraftingConfig, prompts: Sequence[Prompt]) -> JsonObject:
        """Decode all prompts with one drafter and return its figures."""
        drafter = load_drafter(drafting, self._target, is_shared=False)
        if drafter is None:
            raise ValueError("plain decoding accepts nothing")
        measured = MeasuredDrafter(drafter)
        config = self._config.model_copy(update=drafting.model_dump())
        decoder = new_decoder(self._target, measured, config, 1, self._cost_model)
        for prompt, index in product(prompts, range(self._trajectories)):
            scope = scope_name(drafting, prompt.problem_id, index, is_greedy=self._law.temperature == 0)
            decode(decoder, [request(prompt, index, self._law, self._seed, scope)], 1)
        return acceptance_row(measured)


def depth_for(siblings: int) -> int:
    """Return how deep a tree of equal siblings may be, at most 4 levels, without more nodes than the largest trees have."""
    depth = 1
    while depth < 4 and sum(siblings**level for level in range(1, depth + 2)) <= _MOST_NODES:
        depth += 1
    return depth
