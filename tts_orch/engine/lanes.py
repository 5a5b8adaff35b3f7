"""Sixteen float32 numbers as one value in compiled code.

A loop over memory leaves it to the compiler whether accumulators stay in registers; here they do. LLVM splits the value
into whatever vector width the machine has, lane by lane, so the bits are those of sixteen scalars.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

__all__ = ["LANES", "add_lanes", "fma_lanes", "load_lanes", "prefetch", "splat", "store_lanes"]

LANES = 16
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INT = ir.IntType(32)
_FLOAT_BYTES = 4


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


_lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _VECTOR)


def _address(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
    """Pointer to the lanes at flat element `operands[1]` of the contiguous array `operands[0]`."""
    array = make_array(signature.args[0])(context, builder, operands[0])
    return builder.bitcast(builder.gep(array.data, [operands[1]]), _VECTOR.as_pointer())


@intrinsic
def load_lanes(typing_context: Any, array: Any, element: Any) -> Any:
    """The lanes at a flat element of a contiguous float32 array; bounds are not checked."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        return builder.load(_address(context, builder, signature, operands), align=_FLOAT_BYTES)

    return _lanes(array, types.intp), generate


@intrinsic
def store_lanes(typing_context: Any, array: Any, element: Any, value: Any) -> Any:
    """Put lanes at a flat element of a contiguous float32 array; bounds are not checked."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        builder.store(operands[2], _address(context, builder, signature, operands), align=_FLOAT_BYTES)
        return context.get_dummy_value()

    return types.void(array, types.intp, _lanes), generate


@intrinsic
def splat(typing_context: Any, number: Any) -> Any:
    """One number in every lane."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(nothing, operands[0], ir.Constant(_INT, 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES))

    return _lanes(types.float32), generate


@intrinsic
def add_lanes(typing_context: Any, a: Any, b: Any) -> Any:
    """`a + b` in every lane."""
    return _lanes(_lanes, _lanes), lambda context, builder, signature, operands: builder.fadd(*operands)


@intrinsic
def fma_lanes(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """`a * b + c`, rounded once, in every lane."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        name = f"llvm.fma.v{LANES}f32"
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), name
        )
        return builder.call(function, operands)

    return _lanes(_lanes, _lanes, _lanes), generate


@intrinsic
def prefetch(typing_context: Any, array: Any, element: Any) -> Any:
    """Ask for the cache line of a flat element of a contiguous float32 array; any element number is harmless."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        name, pointer = "llvm.prefetch.p0", ir.IntType(8).as_pointer()
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT]), name
        )
        address = builder.bitcast(_address(context, builder, signature, operands), pointer)
        read, keep, data = ir.Constant(_INT, 0), ir.Constant(_INT, 2), ir.Constant(_INT, 1)
        builder.call(function, [address, read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
