"""What threads of a warp or a block tell each other, and which thread is which."""

from __future__ import annotations

from collections.abc import Callable

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Region
from tileops.ir.stmt import Exchange, Fill, GridBarrier, Intrinsic, Launch
from tileops.ir.threads import EXCHANGES
from tileops.language.allocation import alloc_global
from tileops.language.launch import SYNC_WARP, get_thread_binding
from tileops.language.operands import int_of
from tileops.language.tracer import ThreadIndices, Tracer, require_launch, require_tracer
from tileops.language.value import Value, named, to_expr

__all__ = [
    "activemask", "all_sync", "any_sync", "ballot", "ballot_sync", "get_lane_idx",
    "get_warp_group_idx", "get_warp_idx", "get_warp_idx_sync", "match_all_sync", "match_any_sync",
    "shfl_down", "shfl_down_sync", "shfl_sync", "shfl_up", "shfl_up_sync", "shfl_xor",
    "shfl_xor_sync", "sync_grid", "sync_warp", "syncthreads_and", "syncthreads_count",
    "syncthreads_or", "tvm_warp_shuffle", "warp_reduce_bitand", "warp_reduce_bitor",
    "warp_reduce_max", "warp_reduce_min", "warp_reduce_sum",
]  # fmt: skip

_WARP = 32
_WIDTHS = (1, 2, 4, 8, 16, 32)
_ALL = 0xFFFFFFFF
_MASK = DType("uint32")


def _tracer_of(construct: str) -> Tracer:
    """The running trace, where a statement of a thread may be."""
    tracer = require_tracer(construct)
    tracer.require_launch(construct)
    if tracer.in_parallel:
        raise ProgramValueError(
            f"{construct} is for threads and cannot be inside T.Parallel, whose points are dealt "
            "to threads"
        )
    return tracer


def _exchanged(op: str, *args: Expr) -> Value:
    tracer = _tracer_of(f"T.{op}")
    result = tracer.new_var(op, DType(EXCHANGES[op] or args[0].dtype))
    tracer.emit(Exchange(result, op, args))
    tracer.define(result)
    return Value(result)


def _value(op: str, value: object) -> Expr:
    expr = to_expr(value, f"the value of T.{op}")
    if expr.dtype.bits < 8:
        raise ProgramTypeError(
            f"T.{op}: wrong value", expected="a number of 8 to 64 bits", found=str(expr.dtype)
        )
    return expr


def _condition(op: str, predicate: object) -> Expr:
    expr = to_expr(predicate, f"the predicate of T.{op}")
    if expr.dtype.is_float:
        raise ProgramTypeError(
            f"T.{op}: wrong predicate", expected="a bool or an integer", found=str(expr.dtype)
        )
    return fold.truth(expr)


def _mask(op: str, mask: object) -> Expr:
    expr = to_expr(mask, f"the mask of T.{op}")
    if not expr.dtype.is_integer:
        raise ProgramTypeError(
            f"T.{op}: wrong mask", expected="an integer, a bit for each lane", found=str(expr.dtype)
        )
    if isinstance(expr, Const) and not 0 < int(expr.value) <= _ALL:
        raise ProgramValueError(
            f"T.{op}: wrong mask", expected="1 to 0xFFFFFFFF", found=hex(int(expr.value))
        )
    return fold.cast(expr, _MASK)


# -- shuffles --------------------------------------------------------------------------------------
def _shuffle(op: str, text: str) -> Callable[..., Value]:
    def function(value: object, delta: object, width: object = _WARP, mask: object = _ALL) -> Value:
        require_launch(f"T.{op}")
        lanes = int_of(f"T.{op}", "width", width)
        if lanes not in _WIDTHS:
            raise ProgramValueError(
                f"T.{op}: wrong width", expected="a power of 2 up to 32", found=str(lanes)
            )
        where = to_expr(delta, f"the lane of T.{op}")
        if not where.dtype.is_integer:
            raise ProgramTypeError(
                f"T.{op}: wrong lane", expected="an integer", found=str(where.dtype)
            )
        at = fold.cast(where, fold.INT32)
        return _exchanged(op, _value(op, value), at, fold.const(lanes), _mask(op, mask))

    return named(op, text, function)


shfl_sync = _shuffle(
    "shfl_sync", "The value of the lane that ``delta`` names, in each ``width`` lanes of a warp."
)
shfl_up = shfl_up_sync = _shuffle(
    "shfl_up", "The value of the lane ``delta`` before; its own for the first ones of ``width``."
)
shfl_down = shfl_down_sync = _shuffle(
    "shfl_down", "The value of the lane ``delta`` after; its own for the last ones of ``width``."
)
shfl_xor = shfl_xor_sync = _shuffle(
    "shfl_xor", "The value of the lane whose number differs in the bits of ``delta``."
)


def tvm_warp_shuffle(
    mask: object, value: object, warp_id: object, width: object, warp_size: object
) -> Value:
    """T.shfl_sync with the arguments in another order."""
    if int_of("T.tvm_warp_shuffle", "warp_size", warp_size) > _WARP:
        raise ProgramValueError(
            "T.tvm_warp_shuffle: wrong warp_size", expected="at most 32", found=str(warp_size)
        )
    return shfl_sync(value, warp_id, width, mask)


# -- votes -----------------------------------------------------------------------------------------
def any_sync(predicate: object, mask: object = _ALL) -> Value:
    """1 if the predicate holds in any lane of ``mask``, else 0."""
    return _exchanged("any_sync", _condition("any_sync", predicate), _mask("any_sync", mask))


def all_sync(predicate: object, mask: object = _ALL) -> Value:
    """1 if the predicate holds in every lane of ``mask``, else 0."""
    return _exchanged("all_sync", _condition("all_sync", predicate), _mask("all_sync", mask))


def ballot_sync(predicate: object, mask: object = _ALL) -> Value:
    """A uint64 with a bit for each lane of ``mask`` in which the predicate holds."""
    op = "ballot_sync"
    return _exchanged(op, _condition(op, predicate), _mask(op, mask))


def ballot(predicate: object) -> Value:
    """T.ballot_sync of the whole warp."""
    return ballot_sync(predicate)


def match_any_sync(value: object, mask: object = _ALL) -> Value:
    """A uint32 with a bit for each lane of ``mask`` that has the same value."""
    op = "match_any_sync"
    return _exchanged(op, _value(op, value), _mask(op, mask))


def match_all_sync(value: object, mask: object = _ALL) -> Value:
    """``mask`` if all its lanes have the same value, else 0."""
    op = "match_all_sync"
    return _exchanged(op, _value(op, value), _mask(op, mask))


def activemask() -> Value:
    """A uint64 with a bit for each lane that runs this together with the thread; on GPUs alone."""
    return _exchanged("activemask")


# -- reductions ------------------------------------------------------------------------------------
def _reduction(op: str, what: str) -> Callable[[object], Value]:
    def function(value: object) -> Value:
        expr = _value(op, value)
        if "_bit" in op and not expr.dtype.is_integer:
            raise ProgramTypeError(
                f"T.{op}: wrong value", expected="an integer", found=str(expr.dtype)
            )
        if require_launch(f"T.{op}").thread_count % _WARP:
            raise ProgramValueError(
                f"T.{op} needs whole warps", expected="T.Kernel(..., threads=) a multiple of 32"
            )
        return _exchanged(op, expr)

    return named(op, f"{what} of the values of all lanes of the warp, in each of them.", function)


warp_reduce_sum = _reduction("warp_reduce_sum", "The sum")
warp_reduce_max = _reduction("warp_reduce_max", "The greatest")
warp_reduce_min = _reduction("warp_reduce_min", "The least")
warp_reduce_bitand = _reduction("warp_reduce_bitand", "The bitwise and")
warp_reduce_bitor = _reduction("warp_reduce_bitor", "The bitwise or")


def _of_the_block(op: str, what: str) -> Callable[[object], Value]:
    def function(predicate: object) -> Value:
        return _exchanged(op, _condition(op, predicate))

    return named(op, f"T.sync_threads, and in every thread {what}.", function)


syncthreads_and = _of_the_block("syncthreads_and", "1 if the predicate holds in all of them")
syncthreads_or = _of_the_block("syncthreads_or", "1 if the predicate holds in any of them")
syncthreads_count = _of_the_block("syncthreads_count", "in how many of them the predicate holds")


def sync_warp(mask: object = None) -> None:
    """The lanes of ``mask`` in the thread's warp, by default all, wait for each other."""
    tracer = _tracer_of("T.sync_warp")
    tracer.emit(Intrinsic(SYNC_WARP, (_mask("sync_warp", _ALL if mask is None else mask),)))


def sync_grid() -> None:
    """All threads of the launch wait for each other; its blocks must fit on the GPU at once."""
    tracer = _tracer_of("T.sync_grid")
    state = tracer.require_launch("T.sync_grid")
    if state.arrivals is None:
        state.arrivals = alloc_global((1,), _MASK).node
        # A launch of its own sets the count to 0 before this one.
        zero, one = fold.const(0), fold.const(1)
        region = Region(state.arrivals, (zero,), (one,))
        block = tracer.new_var("b", fold.INT32)
        body = (Fill(region, fold.const(0, _MASK), loc=tracer.location),)
        tracer.lanes.append(ThreadIndices((_WARP,)))
        tracer.emit_launch(Launch((one,), (block,), _WARP, body))
    tracer.emit(GridBarrier(state.arrivals))


# -- which thread ----------------------------------------------------------------------------------
def _linear(construct: str) -> Expr:
    """The number of the thread in its block."""
    state = require_launch(construct)
    total: Expr = fold.const(0)
    size = 1
    for dim, extent in enumerate(state.threads):
        if extent > 1 or len(state.threads) == 1:
            index = to_expr(get_thread_binding(dim))
            total = fold.add(total, fold.mul(index, fold.const(size)))
        size *= extent
    return total


def _size(construct: str, what: str, given: object, default: int) -> Expr:
    number = default if given is None else int_of(construct, what, given)
    if number < 1:
        raise ProgramValueError(f"{construct}: {what} is positive", found=str(number))
    return fold.const(number)


def get_lane_idx(warp_size: object = None) -> Value:
    """The thread's number in its warp."""
    size = _size("T.get_lane_idx", "warp_size", warp_size, _WARP)
    return Value(fold.binary("floormod", _linear("T.get_lane_idx"), size))


def get_warp_idx(warp_size: object = None) -> Value:
    """The number of the thread's warp in its block."""
    size = _size("T.get_warp_idx", "warp_size", warp_size, _WARP)
    return Value(fold.binary("floordiv", _linear("T.get_warp_idx"), size))


get_warp_idx_sync = get_warp_idx


def get_warp_group_idx(warp_size: object = None, warps_per_group: object = None) -> Value:
    """The number of the thread's group of 4 warps in its block."""
    warp = _size("T.get_warp_group_idx", "warp_size", warp_size, _WARP)
    warps = _size("T.get_warp_group_idx", "warps_per_group", warps_per_group, 4)
    return Value(fold.binary("floordiv", _linear("T.get_warp_group_idx"), fold.mul(warp, warps)))
