"""`stabilise`: give a loaded model linears and activations whose bits do not depend on the rest of the batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tts_orch.engine.stable_activation import UNSTABLE_ACTIVATIONS, StableActivation, kind_of
from tts_orch.engine.stable_linear import StableLinear
from tts_orch.engine.threads import reserve_for_kernels

__all__ = ["StabilityReport", "stabilise"]


@dataclass(frozen=True, slots=True)
class StabilityReport:
    """What `stabilise` found.

    Attributes:
        n_replaced: modules that were replaced.
        reason: what has no stable twin, for a message; empty if everything has one.
    """

    n_replaced: int
    reason: str

    @property
    def is_stable(self) -> bool:
        """Whether every linear and activation found has a stable twin."""
        return not self.reason


def stabilise(model: nn.Module) -> StabilityReport:
    """Replace, in place, every linear and activation of a CPU model that has a stable twin.

    Weights shared with an embedding stay with the embedding, all others are freed. What is left to torch is short and
    elementwise: it keeps one thread.
    """
    n_replaced = 0
    missing: set[str] = set()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            try:
                twin = _stable_twin(module)
            except TypeError as error:
                missing.add(str(error))
                continue
            if twin is not None:
                setattr(parent, name, twin)
                n_replaced += 1
    if not missing:
        reserve_for_kernels()
    return StabilityReport(n_replaced, ", ".join(sorted(missing)))


def _stable_twin(module: nn.Module) -> nn.Module | None:
    """What replaces a module; `None` for modules that need no replacement.

    Raises:
        TypeError: there is none for this module.
    """
    kind = kind_of(module)
    if kind is not None:
        return StableActivation(kind)
    if isinstance(module, UNSTABLE_ACTIVATIONS):
        raise TypeError(type(module).__name__)
    if not isinstance(module, nn.Linear):
        return None
    if type(module) is not nn.Linear or module.weight.dtype != torch.float32:
        raise TypeError(f"{type(module).__name__} of {module.weight.dtype}")
    return StableLinear(module.weight, module.bias)
