"""Float32 building blocks for compiled kernels whose bits follow from IEEE 754 alone.

Nothing here allows reassociation or contraction: a vector body and a scalar tail of a loop, one thread and many, give
the same bits. Every fused multiply-add is written out, so that no compiler has a choice to make.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

__all__ = ["exp", "fma", "sigmoid", "tanh"]

_LOG2_E = np.float32(1.44269504)
_LN2_HIGH = np.float32(0.693145752)  # the leading bits of ln 2: multiples up to 2**8 are exact
_LN2_LOW = np.float32(1.42860677e-06)
_ROUND_TO_INTEGER = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
_EXP_LOWEST = np.float32(-87.33654)  # below, the result is not a normal number: zero
_EXP_HIGHEST = np.float32(88.376)  # above, the power of two is not a number any more: infinite
_SERIES_BELOW = np.float32(0.35)
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)


@intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> tuple[Any, Callable[..., Any]]:
    """`a * b + c` of three float32 numbers, rounded once."""
    signature = types.float32(types.float32, types.float32, types.float32)
    return signature, lambda context, builder, signature, operands: builder.fma(*operands)


@intrinsic
def _bits(typing_context: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
    """The int32 with the bits of a float32."""
    return types.int32(types.float32), lambda context, builder, signature, operands: builder.bitcast(
        operands[0], ir.IntType(32)
    )


@intrinsic
def _from_bits(typing_context: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
    """The float32 with the bits of an int32."""
    return types.float32(types.int32), lambda context, builder, signature, operands: builder.bitcast(
        operands[0], ir.FloatType()
    )


@njit(cache=True, nogil=True)
def exp(x: np.float32) -> np.float32:
    """Return e to the x, within a unit in the last place; exactly 0 below -87.33 and infinite above 88.37.

    Branch-free, so that loops over it become vector code: Cody-Waite range reduction and a polynomial (Horner).
    """
    bounded = x if x > _EXP_LOWEST else _EXP_LOWEST
    bounded = bounded if bounded < _EXP_HIGHEST else _EXP_HIGHEST
    shifted = fma(bounded, _LOG2_E, _ROUND_TO_INTEGER)
    multiple = np.float32(shifted - _ROUND_TO_INTEGER)
    r = fma(-multiple, _LN2_LOW, fma(-multiple, _LN2_HIGH, bounded))  # |r| <= ln(2) / 2
    p = fma(np.float32(1.98412698e-4), r, np.float32(1.38888889e-3))
    p = fma(p, r, np.float32(8.33333333e-3))
    p = fma(p, r, np.float32(4.16666667e-2))
    p = fma(p, r, np.float32(1.66666667e-1))
    p = fma(p, r, np.float32(0.5))
    p = fma(p, r, _ONE)
    p = fma(p, r, _ONE)
    exponent = np.int32(_bits(shifted) - _bits(_ROUND_TO_INTEGER))  # -126 .. 127
    result = np.float32(p * _from_bits(np.int32((exponent + np.int32(127)) << np.int32(23))))
    result = result if x > _EXP_LOWEST else _ZERO
    return result if x < _EXP_HIGHEST else np.float32(np.inf)


@njit(cache=True, nogil=True)
def sigmoid(x: np.float32) -> np.float32:
    """Return 1 / (1 + e to the -x)."""
    return np.float32(_ONE / np.float32(_ONE + exp(np.float32(-x))))


@njit(cache=True, nogil=True)
def tanh(x: np.float32) -> np.float32:
    """Hyperbolic tangent, within 4 units in the last place; branch-free."""
    size = np.float32(abs(x))
    square = np.float32(x * x)
    series = fma(square, np.float32(-1382.0 / 155925.0), np.float32(62.0 / 2835.0))
    series = fma(square, series, np.float32(-17.0 / 315.0))
    series = fma(square, series, np.float32(2.0 / 15.0))
    series = fma(square, series, np.float32(-1.0 / 3.0))
    small = fma(np.float32(x * square), series, x)
    decay = exp(np.float32(np.float32(-2.0) * size))
    large = np.float32(np.float32(_ONE - decay) / np.float32(_ONE + decay))
    large = large if x > _ZERO else np.float32(-large)
    return small if size < _SERIES_BELOW else large
