"""The innermost loop of a matrix product: up to a dozen rows times a panel of 32 columns, accumulators in registers.

Every element of the result is one chain of fused multiply-adds over the inner dimension, in order, whatever the number
of rows: the bits are the row's own. While it computes, the kernel asks for the panel that comes next, so that weights
stream from memory during the arithmetic and not between two spells of it.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = ["MOST_ROWS", "PANEL", "multiply_add"]

PANEL: Final = 32
"""Columns of a panel."""

MOST_ROWS: Final = 12 if binding.get_host_cpu_features().get("avx512f") else 3
"""Rows at a time: as many as leave their accumulators in the machine's vector registers."""

_LANES: Final = 16
_VECTOR = ir.VectorType(ir.FloatType(), _LANES)
_INT = ir.IntType(32)
_BYTE_POINTER = ir.IntType(8).as_pointer()
_FLOAT_BYTES: Final = 4


@intrinsic
def multiply_add(
    typing_context: Any, n_rows: Any, inner: Any, rows: Any, row: Any, row_stride: Any, panels: Any, panel: Any,
    result: Any, place: Any, result_stride: Any, upcoming: Any, upcoming_step: Any,
) -> Any:  # fmt: skip
    """Add `rows @ panel` to a block of the result; all arrays are flat, contiguous float32.

    Args:
        typing_context: numba's.
        n_rows: 1 to `MOST_ROWS`.
        inner: length of the chains.
        rows: left operand; row `r` begins at element `row + r * row_stride`.
        row: see `rows`.
        row_stride: see `rows`.
        panels: right operand, `[inner, 32]` from element `panel` on.
        panel: see `panels`.
        result: row `r` of the block begins at element `place + r * result_stride`.
        place: see `result`.
        result_stride: see `result`.
        upcoming: element of `panels` to fetch ahead from; need not exist.
        upcoming_step: elements by which that advances each link of the chains.
    """
    signature = types.void(
        types.intp, types.intp, rows, types.intp, types.intp, panels, types.intp, result, types.intp, types.intp,
        types.intp, types.intp,
    )  # fmt: skip

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        n, inner, rows, row, row_stride, panels, panel, result, place, result_stride, upcoming, step = operands
        left = builder.gep(_data(context, builder, signature.args[2], rows), [row])
        right = _data(context, builder, signature.args[5], panels)
        output = builder.gep(_data(context, builder, signature.args[7], result), [place])
        done = builder.append_basic_block("done")
        choice = builder.switch(n, done)
        for count in range(1, MOST_ROWS + 1):
            block = builder.append_basic_block(f"rows_{count}")
            choice.add_case(ir.Constant(n.type, count), block)
            builder.position_at_end(block)
            lefts = [builder.gep(left, [builder.mul(row_stride, n.type(r))]) for r in range(count)]
            outputs = [builder.gep(output, [builder.mul(result_stride, n.type(r))]) for r in range(count)]
            ahead = builder.gep(right, [upcoming])
            _emit_rows(builder, inner, lefts, builder.gep(right, [panel]), outputs, ahead, step)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


def _data(context: Any, builder: ir.IRBuilder, array_type: Any, array: Any) -> Any:
    return make_array(array_type)(context, builder, array).data


def _emit_rows(
    builder: ir.IRBuilder, inner: Any, lefts: list[Any], right: Any, outputs: list[Any], ahead: Any, step: Any
) -> None:
    """The loop for a fixed number of rows."""
    offsets = range(0, PANEL, _LANES)
    places = [[_vector_at(builder, output, offset) for offset in offsets] for output in outputs]
    zero = ir.Constant(_VECTOR, None)
    sums = [[cgutils.alloca_once_value(builder, zero) for _ in offsets] for _ in outputs]
    with cgutils.for_range(builder, inner) as loop:
        weights_at = builder.gep(right, [builder.mul(loop.index, inner.type(PANEL))])
        weights = [_load(builder, _vector_at(builder, weights_at, offset)) for offset in offsets]
        ahead_at = builder.gep(ahead, [builder.mul(loop.index, step)])
        for offset in offsets:
            _fetch(builder, builder.gep(ahead_at, [_INT(offset)]))
        for left, row_sums in zip(lefts, sums, strict=True):
            factor = _splat(builder, builder.load(builder.gep(left, [loop.index])))
            for weight, row_sum in zip(weights, row_sums, strict=True):
                builder.store(_fma(builder, factor, weight, builder.load(row_sum)), row_sum)
    for row_sums, row_places in zip(sums, places, strict=True):
        for row_sum, place in zip(row_sums, row_places, strict=True):
            total = builder.fadd(_load(builder, place), builder.load(row_sum))
            builder.store(total, place, align=_FLOAT_BYTES)


def _vector_at(builder: ir.IRBuilder, pointer: Any, offset: int) -> Any:
    return builder.bitcast(builder.gep(pointer, [_INT(offset)]), _VECTOR.as_pointer())


def _load(builder: ir.IRBuilder, pointer: Any) -> Any:
    return builder.load(pointer, align=_FLOAT_BYTES)


def _splat(builder: ir.IRBuilder, number: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, _INT(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT, _LANES), [0] * _LANES))


def _fma(builder: ir.IRBuilder, a: Any, b: Any, c: Any) -> Any:
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{_LANES}f32"
    )
    return builder.call(function, [a, b, c])


def _fetch(builder: ir.IRBuilder, pointer: Any) -> None:
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [_BYTE_POINTER, _INT, _INT, _INT]), "llvm.prefetch.p0"
    )
    read, second_level, data = _INT(0), _INT(2), _INT(1)
    builder.call(function, [builder.bitcast(pointer, _BYTE_POINTER), read, second_level, data])
