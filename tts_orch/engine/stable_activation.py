"""Activations that give an element the same bits wherever it stands.

torch computes SiLU and GELU by vector code with a scalar tail that rounds otherwise, so an element's result depends on
the width, the number of rows and the number of threads. Except for the error function, all are `x * sigmoid(g(x))`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import activations

from tts_orch.engine.fixed_math import fma, sigmoid
from tts_orch.engine.parallel import on_every_thread, take_task, team
from tts_orch.engine.threads import n_threads
from tts_orch.records import FloatArray

__all__ = ["UNSTABLE_ACTIVATIONS", "StableActivation", "kind_of"]

_SILU, _QUICK_GELU, _GELU_TANH, _GELU_ERF, _SIGMOID = range(5)
_CHUNK: Final = 4096  # elements a task
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_CUBIC = np.float32(0.044715)
_TWICE_ROOT = np.float32(2.0 * math.sqrt(2.0 / math.pi))  # (1 + tanh(u)) / 2 = sigmoid(2 u)
_ROOT_HALF = np.float32(math.sqrt(0.5))
_QUICK = np.float32(1.702)

_KINDS: dict[type[nn.Module], int] = {
    nn.SiLU: _SILU,
    activations.SiLUActivation: _SILU,
    activations.QuickGELUActivation: _QUICK_GELU,
    activations.GELUTanh: _GELU_TANH,
    activations.NewGELUActivation: _GELU_TANH,
    activations.FastGELUActivation: _GELU_TANH,
    activations.AccurateGELUActivation: _GELU_TANH,
    activations.GELUActivation: _GELU_ERF,
    nn.Sigmoid: _SIGMOID,
}
UNSTABLE_ACTIVATIONS: tuple[type[nn.Module], ...] = (
    activations.ClippedGELUActivation,
    activations.LaplaceActivation,
    activations.MishActivation,
    activations.SqrtSoftplusActivation,
    activations.XIELUActivation,
)
"""Activations of transformers that have no stable twin here. Those in neither list are exact operations."""


def kind_of(module: nn.Module) -> int | None:
    """Which stable activation replaces a module; `None` for other modules."""
    if type(module) is nn.GELU:
        return _GELU_TANH if module.approximate == "tanh" else _GELU_ERF
    return _KINDS.get(type(module))


class StableActivation(nn.Module):
    """An elementwise activation of float32 tensors on the CPU."""

    def __init__(self, kind: int) -> None:
        """Compute the activation `kind`, as `kind_of` names it."""
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise, any shape."""
        source = x.contiguous()
        result = torch.empty_like(source)
        _activate(team(), n_threads(), self.kind, source.view(-1).numpy(), result.view(-1).numpy())
        return result


@njit(cache=True, nogil=True)
def _run(kind: int, x: FloatArray, result: FloatArray, first: int, last: int) -> None:
    if kind == _SILU:
        for i in range(first, last):
            result[i] = x[i] * sigmoid(x[i])
    elif kind == _QUICK_GELU:
        for i in range(first, last):
            result[i] = x[i] * sigmoid(np.float32(_QUICK * x[i]))
    elif kind == _GELU_TANH:
        for i in range(first, last):
            inner = fma(np.float32(_CUBIC * x[i]), np.float32(x[i] * x[i]), x[i])
            result[i] = x[i] * sigmoid(np.float32(_TWICE_ROOT * inner))
    elif kind == _GELU_ERF:
        for i in range(first, last):
            result[i] = np.float32(_HALF * x[i]) * np.float32(_ONE + math.erf(np.float32(_ROOT_HALF * x[i])))
    else:
        for i in range(first, last):
            result[i] = sigmoid(x[i])


@njit(cache=True, nogil=True)
def _activate_tasks(counter: NDArray[np.int64], kind: int, x: FloatArray, result: FloatArray) -> None:
    while True:
        first = take_task(counter) * _CHUNK
        if first >= x.size:
            return
        _run(kind, x, result, first, min(first + _CHUNK, x.size))


@njit(cache=True, nogil=True)
def _activate(control: NDArray[np.int64], n_threads: int, kind: int, x: FloatArray, result: FloatArray) -> None:
    counter = np.zeros(1, np.int64)
    team = n_threads if x.size > 2 * _CHUNK else 1
    on_every_thread(control, team, _activate_tasks, (counter, kind, x, result))
