"""`stabilise`: give a loaded model linears and activations whose bits do not depend on the rest of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from tts_orch.engine.stable_activation import UNSTABLE_ACTIVATIONS, StableActivation, kind_of
from tts_orch.engine.stable_linear import StableLinear, choose_kernel

__all__ = ["StabilityReport", "stabilise"]


@dataclass(frozen=True, slots=True)
class StabilityReport:
    """What `stabilise` found.

    Attributes:
        kernels: kernel of each distinct linear, by `"<out>x<in>"` (with `+b` for a bias).
        reason: what has no stable kernel; empty if everything has one.
    """

    kernels: dict[str, str]
    reason: str

    @property
    def is_stable(self) -> bool:
        """Whether every linear and activation found has a stable kernel."""
        return not self.reason


def stabilise(model: nn.Module) -> StabilityReport:
    """Replace, in place, every linear and activation of a float32 CPU model that has a stable twin.

    To be called with the number of threads in use. Weights shared with an embedding stay with the embedding.
    """
    choices: dict[str, Callable[[Tensor, Tensor | None], StableLinear] | None] = {}
    missing: set[str] = set()
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            kind = kind_of(module)
            if kind is not None:
                setattr(parent, name, StableActivation(kind))
            elif isinstance(module, UNSTABLE_ACTIVATIONS):
                missing.add(type(module).__name__)
            elif isinstance(module, nn.Linear):
                shape = _shape(module)
                if shape not in choices:
                    choices[shape] = choose_kernel(module.weight, module.bias)
                kernel = choices[shape]
                if kernel is None:
                    missing.add(f"a linear layer {shape}")
                else:
                    setattr(parent, name, kernel(module.weight, module.bias))
    kernels = {shape: kernel.kernel for shape, kernel in choices.items() if kernel is not None}
    return StabilityReport(kernels, ", ".join(sorted(missing)))


def _shape(linear: nn.Linear) -> str:
    return f"{linear.out_features}x{linear.in_features}" + ("+b" if linear.bias is not None else "")
