"""A reduction over the threads of a block along a dimension, in TIR's spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Var
from tileops.ir.stmt import For
from tileops.language.allocation import alloc_shared, alloc_var
from tileops.language.buffers import ZERO, Element, store
from tileops.language.launch import get_thread_binding, sync_threads
from tileops.language.missing import on_which_target
from tileops.language.operands import items_of
from tileops.language.tracer import LaunchState, Tracer, require_launch, require_tracer
from tileops.language.value import Value, describe, to_expr

__all__ = ["attr", "comm_reducer", "evaluate", "tvm_thread_allreduce"]


@dataclass(frozen=True)
class CommReducer:
    """How two values are joined, and the value that changes nothing."""

    join: Callable[[Value, Value], object]
    identity: object


def comm_reducer(fcombine: Callable[[Value, Value], object], identity: object) -> CommReducer:
    """How T.tvm_thread_allreduce joins two values; ``identity`` lists what changes nothing."""
    starts = items_of("T.comm_reducer", "identity", identity)
    if not callable(fcombine):
        raise ProgramTypeError(
            "T.comm_reducer: wrong fcombine", expected="a function of two values",
            found=describe(fcombine),
        )  # fmt: skip
    if len(starts) != 1:
        raise UnsupportedConstructError(
            f"T.comm_reducer of {len(starts)} values is not supported by "
            f"tileops{on_which_target()}",
            expected="one value",
        )
    return CommReducer(fcombine, starts[0])


@contextmanager
def attr(node: object, key: object, value: object) -> Iterator[None]:
    """The block in which T.tvm_thread_allreduce reduces as ``node`` says; no other attribute."""
    state = require_launch("T.attr")
    if key != "reduce_scope":
        raise UnsupportedConstructError(
            f"T.attr({key!r}) (TIR) is not supported by tileops{on_which_target()}",
            expected='T.attr(T.comm_reducer(...), "reduce_scope", ...)',
        )
    if not isinstance(node, CommReducer):
        raise ProgramTypeError(
            'T.attr(..., "reduce_scope", ...): wrong node', expected="T.comm_reducer(...)",
            found=describe(node),
        )  # fmt: skip
    state.reducers.append(node)
    yield
    state.reducers.pop()


def evaluate(value: object) -> None:
    """What a construct records by itself; TIR's word for a call whose value nobody takes."""
    if value is not None and not isinstance(value, Value):
        raise ProgramTypeError(
            "T.evaluate: wrong value", expected="a call of a construct", found=describe(value)
        )


def tvm_thread_allreduce(
    size: object,
    value: object,
    cond: object,
    result: object,
    *threads: object,
    dtype: object = None,
) -> None:
    """``result`` becomes the reduction of ``value`` over the threads along the given indices.

    T.attr around it says how. A thread whose ``cond`` is false takes no part. All threads of the
    block run this.
    """
    tracer, state = (
        require_tracer("T.tvm_thread_allreduce"),
        require_launch("T.tvm_thread_allreduce"),
    )
    if not state.reducers:
        raise ProgramValueError(
            "T.tvm_thread_allreduce does not know how to reduce",
            expected='with T.attr(T.comm_reducer(...), "reduce_scope", ...)',
        )
    if size is not None and to_expr(size) != Const(to_expr(size).dtype, 1):
        raise UnsupportedConstructError(
            f"T.tvm_thread_allreduce of several values is not supported by "
            f"tileops{on_which_target()}",
            expected="one value",
        )
    if not isinstance(result, Element):
        raise ProgramTypeError(
            "T.tvm_thread_allreduce: wrong result", expected="an element of a buffer",
            found=describe(result),
        )  # fmt: skip
    reducer = state.reducers[-1]
    assert isinstance(reducer, CommReducer)
    kind = result.ref.node.dtype
    start = fold.cast(to_expr(reducer.identity, "the identity of T.comm_reducer"), kind)
    own = fold.cast(to_expr(value, "the value of T.tvm_thread_allreduce"), kind)
    own = fold.select(fold.truth(to_expr(cond, "the condition")), own, start)
    _reduce(tracer, reducer, (own, start), _dimensions(state, threads), result)


def _dimensions(state: LaunchState, threads: Sequence[object]) -> set[int]:
    """The dimensions of the block whose indices are ``threads``."""
    found = set()
    for thread in threads:
        expr = thread.expr if isinstance(thread, Value) else None
        dims = [dim for dim, var in state.lanes.items() if var == expr]
        if not dims:
            raise ProgramTypeError(
                "T.tvm_thread_allreduce: wrong thread index",
                expected="one of T.get_thread_binding",
                found=describe(thread),
            )
        found.add(dims[0])
    return found


def _reduce(
    tracer: Tracer, reducer: CommReducer, values: tuple[Expr, Expr], dims: set[int], result: Element
) -> None:
    """Each thread shows its value to the block and joins those along ``dims`` in order."""
    state = tracer.require_launch("T.tvm_thread_allreduce")
    own, start = values
    shown = alloc_shared(tuple(reversed(state.threads)), own.dtype)
    total = alloc_var(own.dtype, init=Value(start))
    sync_threads()  # the last round's values have been read
    indices = [to_expr(get_thread_binding(dim)) for dim in range(len(state.threads))]
    store(shown, tuple(reversed(indices)), Value(own))
    sync_threads()
    loops: list[Var] = []
    for dim in sorted(dims, reverse=True):
        loops.append(tracer.new_var(f"other{dim}", fold.INT32))
        tracer.open_region("for")
        indices[dim] = tracer.define(loops[-1], bounded=True)
    other = Element(shown, tuple(reversed(indices)))
    joined = reducer.join(Element(total.ref, (ZERO,)), other)
    store(total.ref, (ZERO,), joined)
    for dim in sorted(dims):
        body = tracer.close_region().body
        extent = fold.const(state.threads[dim])
        tracer.emit(For("serial", loops.pop(), ZERO, extent, body))
    result.store(Element(total.ref, (ZERO,)))
