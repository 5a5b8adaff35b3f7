"""`stabilise`: give a loaded model linears and activations whose bits do not depend on the rest of the batch."""

from __future__ import annotations

import torch
from torch import nn

from tts_orch.engine.stable_activation import UNSTABLE_ACTIVATIONS, StableActivation, kind_of
from tts_orch.engine.stable_linear import StableLinear
from tts_orch.engine.stable_norm import norm_twin
from tts_orch.engine.threads import reserve_for_kernels

__all__ = ["stabilise"]


def stabilise(model: nn.Module) -> str:
    """Replace, in place, every linear, activation and normalisation of a CPU model that has a stable twin.

    Weights shared with an embedding stay with the embedding, all others are freed. What is left to torch is short and
    elementwise: it keeps one thread.

    Returns:
        What has no stable twin, for a message; empty if everything has one.
    """
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
    if not missing:
        reserve_for_kernels()
    return ", ".join(sorted(missing))


def _stable_twin(module: nn.Module) -> nn.Module | None:
    """What replaces a module; `None` for modules that need no replacement.

    Raises:
        TypeError: there is none for this module.
    """
    norm = norm_twin(module)
    if norm is not None:
        return norm
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
