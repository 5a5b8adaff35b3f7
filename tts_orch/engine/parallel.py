"""Threads for compiled kernels: helpers that join a region while it lasts, and are never waited for unless they did.

OpenMP ends a region when every thread of the team has come by; on a shared machine that means waiting, hundreds of times
a pass, for a thread that has no core. Here the caller does all tasks that nobody else takes and waits only for helpers
in the middle of one. A process forked later has no helpers and computes alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numpy.typing import NDArray

from tts_orch.engine.threads import n_threads

__all__ = ["on_every_thread", "take_task", "team"]

# Places of the control block, each on a cache line of its own, and the parts of the state.
_STATE, _LOCK, _BODY, _DATA, _LIMIT = 0, 8, 16, 17, 18
_ACTIVE, _OPEN, _GENERATION = 2**15 - 1, 2**15, 2**16

_SPINS = 600_000  # about 0.2 ms: longer than from one kernel of a pass to the next
_PATIENCE = 10_000  # spins before the caller offers its core to a helper that is late
_NAP_US = 50
_NAPS = 400  # then the helper sleeps until the next kernel

_POINTER = ir.IntType(8).as_pointer()
_REGION = ir.FunctionType(ir.VoidType(), [_POINTER])
_INT64 = ir.IntType(64)
_yield_core = types.ExternalFunction("sched_yield", types.int32())
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))


def _element(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
    array = make_array(signature.args[0])(context, builder, operands[0])
    return builder.gep(array.data, [operands[1]])


@intrinsic
def _atomic_load(typing_context: Any, array: Any, place: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        return builder.load_atomic(_element(context, builder, signature, operands), "seq_cst", 8)

    return types.int64(array, types.intp), generate


@intrinsic
def _atomic_add(typing_context: Any, array: Any, place: Any, change: Any) -> tuple[Any, Callable[..., Any]]:
    """Add in one indivisible step; the number before."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        return builder.atomic_rmw("add", _element(context, builder, signature, operands), operands[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def _exchange_if(typing_context: Any, array: Any, place: Any, old: Any, new: Any) -> tuple[Any, Callable[..., Any]]:
    """Replace `old` by `new` in one indivisible step; whether it was `old`."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        address = _element(context, builder, signature, operands)
        outcome = builder.cmpxchg(address, operands[2], operands[3], "seq_cst", "seq_cst")
        return builder.extract_value(outcome, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), generate


@intrinsic
def _call(typing_context: Any, body: Any, data: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        function = builder.inttoptr(operands[0], _REGION.as_pointer())
        builder.call(function, [builder.inttoptr(operands[1], _POINTER)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@njit(cache=True, nogil=True)
def _lead(control: NDArray[np.int64], n_threads: int, body: int, data: int) -> None:
    """Open a region, take part in it, close it; without helpers while another caller's region is open."""
    if n_threads <= 1 or not _exchange_if(control, _LOCK, 0, 1):
        _call(body, data)
        return
    control[_BODY], control[_DATA], control[_LIMIT] = body, data, n_threads - 1
    _atomic_add(control, _STATE, _GENERATION + _OPEN)
    _call(body, data)
    _atomic_add(control, _STATE, -_OPEN)
    waited = 0
    while _atomic_load(control, _STATE) & _ACTIVE:
        waited += 1
        if waited > _PATIENCE:
            _yield_core()
    _exchange_if(control, _LOCK, 1, 0)


@njit(cache=True, nogil=True)
def _serve(control: NDArray[np.int64]) -> None:
    """Join every region that opens; return when none has for a while."""
    joined, idle = 0, 0
    while idle < _SPINS + _NAPS:
        state = _atomic_load(control, _STATE)
        generation = state // _GENERATION
        if state & _OPEN and generation != joined and (state & _ACTIVE) < control[_LIMIT]:
            if _exchange_if(control, _STATE, state, state + 1):
                joined, idle = generation, 0
                _call(control[_BODY], control[_DATA])
                _atomic_add(control, _STATE, -1)
            continue
        idle += 1
        if idle > _SPINS:
            _usleep(_NAP_US)


class _Helper(threading.Thread):
    """A thread that serves the control block and sleeps when there is nothing to do."""

    def __init__(self, control: NDArray[np.int64]) -> None:
        super().__init__(name="kernel-helper", daemon=True)
        self._control = control
        self.is_asleep = False
        self.alarm = threading.Event()

    def run(self) -> None:
        while True:
            _serve(self._control)
            self.is_asleep = True
            self.alarm.wait()
            self.alarm.clear()
            self.is_asleep = False


_control: NDArray[np.int64] = np.zeros(24, np.int64)
_helpers: list[_Helper] = []


def team() -> NDArray[np.int64]:
    """The control block to hand to `on_every_thread`, its helpers started and awake."""
    while len(_helpers) < n_threads() - 1:
        _helpers.append(_Helper(_control))
        _helpers[-1].start()
    for helper in _helpers:
        if helper.is_asleep:
            helper.alarm.set()
    return _control


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
def on_every_thread(typing_context: Any, control: Any, n_threads: Any, function: Any, arguments: Any) -> Any:
    """Run `function(*arguments)` here and on up to `n_threads - 1` helpers of `control` (from `team()`).

    The function shares its work out by `take_task` and must not raise. It has returned everywhere when this returns.
    """
    call = function.get_call_type(typing_context, tuple(arguments), {})
    signature = types.void(control, types.int64, function, arguments)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, operands: Any) -> Any:
        control, n, _, values = operands
        body = builder.ptrtoint(_region_body(context, builder.module, function, call, values.type), _INT64)
        data = builder.ptrtoint(cgutils.alloca_once_value(builder, values), _INT64)
        lead = types.void(signature.args[0], types.int64, types.int64, types.int64)
        context.compile_internal(
            builder, lambda control, n, body, data: _lead(control, n, body, data), lead, [control, n, body, data]
        )
        return context.get_dummy_value()

    return signature, generate


@njit(cache=True, nogil=True)
def take_task(counter: NDArray[np.int64]) -> int:
    """Add one to `counter[0]` in one indivisible step; the number before."""
    return _atomic_add(counter, 0, 1)
