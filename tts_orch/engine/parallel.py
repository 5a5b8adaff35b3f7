"""Threads for compiled kernels: torch's own OpenMP pool, so that no second pool competes for the cores.

numba's OpenMP layer loads another copy of the runtime, whose waiting threads spin against torch's; its work queue must
not be entered by two Python threads at once. Here a kernel asks the runtime that torch has loaded to run one compiled
function on every thread of the team, and the threads take numbered tasks from a shared counter.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = ["on_every_thread", "runtime_entry", "take_task"]

logger = logging.getLogger(__name__)

_POINTER = ir.IntType(8).as_pointer()
_REGION = ir.FunctionType(ir.VoidType(), [_POINTER])
_ENTRY = ir.FunctionType(ir.VoidType(), [_REGION.as_pointer(), _POINTER, ir.IntType(32), ir.IntType(32)])


@functools.cache
def runtime_entry() -> int:
    """Address of the parallel-region entry of the OpenMP runtime torch uses; 0 where it has none (one thread then)."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu*")):
        try:  # a symbol looked up in a loaded library is found in its dependencies too
            entry = ctypes.CDLL(str(library)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        return ctypes.cast(entry, ctypes.c_void_p).value or 0
    logger.info("torch's OpenMP runtime has no GNU entry: compiled kernels use one thread")
    return 0


def _region_body(context: Any, module: ir.Module, function: Any, signature: Any, data_type: ir.Type) -> ir.Function:
    """The C function that unpacks the arguments and calls the compiled one."""
    body = ir.Function(module, _REGION, module.get_unique_name("parallel_region"))
    body.linkage = "internal"
    builder = ir.IRBuilder(body.append_basic_block("entry"))
    arguments = builder.load(builder.bitcast(body.args[0], data_type.as_pointer()))
    compiled = function.dispatcher.get_compile_result(signature)
    context.add_linking_libs([compiled.library])
    context.call_internal_no_propagate(
        builder, compiled.fndesc, signature, cgutils.unpack_tuple(builder, arguments, len(signature.args))
    )
    builder.ret_void()
    return body


@intrinsic
def on_every_thread(typing_context: Any, entry: Any, n_threads: Any, function: Any, arguments: Any) -> Any:
    """Run `function(*arguments)` once on each of `n_threads` threads of torch's pool, this one included.

    The function must not raise. With one thread, or no runtime entry (0), it is a plain call.
    """
    call = function.get_call_type(typing_context, tuple(arguments), {})
    signature = types.void(types.intp, types.intp, function, arguments)

    def generate(context: Any, builder: ir.IRBuilder, _: Any, operands: Any) -> Any:
        address, n, _, values = operands
        body = _region_body(context, builder.module, function, call, values.type)
        data = builder.bitcast(cgutils.alloca_once_value(builder, values), _POINTER)
        alone = builder.or_(
            builder.icmp_signed("<=", n, ir.Constant(n.type, 1)),
            builder.icmp_unsigned("==", address, ir.Constant(address.type, 0)),
        )
        with builder.if_else(alone) as (serial, parallel):
            with serial:
                builder.call(body, [data])
            with parallel:
                enter = builder.inttoptr(address, _ENTRY.as_pointer())
                no_flags = ir.Constant(ir.IntType(32), 0)
                builder.call(enter, [body, data, builder.trunc(n, ir.IntType(32)), no_flags])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def take_task(typing_context: Any, counter: Any) -> tuple[Any, Callable[..., Any]]:
    """Add one to `counter[0]` (int64) in one indivisible step; the number before."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, operands[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate
