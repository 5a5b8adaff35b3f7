"""How much a method has to decode at most, from its settings alone."""

from __future__ import annotations

from dataclasses import dataclass

from tts_orch.config import DVTS, BudgetForcing, MethodConfig
from tts_orch.method_config import OwnMethod, StepwiseMethod

__all__ = ["Workload", "workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What one of a problem's n candidates takes at most.

    Attributes:
        calls: trajectories to sample; in searches over steps, one a step.
        generated_tokens: where the steps that are dropped are as long as those that are kept.
    """

    calls: int
    generated_tokens: int


def workload(method: MethodConfig, max_new_tokens: int) -> Workload | None:
    """Return the work of one candidate, None for a policy that is not of this package.

    Args:
        method: settings of the method.
        max_new_tokens: of the sampling law.
    """
    if isinstance(method, OwnMethod):
        return None
    if isinstance(method, BudgetForcing):
        return Workload(method.ignores + 2, max_new_tokens)
    if not isinstance(method, StepwiseMethod):
        return Workload(1, max_new_tokens)
    n_steps = min(method.max_steps, max_new_tokens)
    n_looks = 1 + (method.lookahead if isinstance(method, DVTS) else 0)  # a step, and those it is looked at by
    return Workload(n_steps * n_looks, max_new_tokens * n_looks)
