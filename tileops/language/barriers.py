"""Barriers between groups of threads: those in shared memory (mbarrier) and the hardware's own."""

from __future__ import annotations

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.explicit import (
    AllocBarriers,
    BarrierArrive,
    BarrierArriveAfterCopies,
    BarrierExpect,
    BarrierWait,
    NamedBarrier,
)
from tileops.ir.expr import Buffer, Const, Expr
from tileops.language.buffers import ZERO, BufferRef, Element
from tileops.language.operands import int_of
from tileops.language.tracer import Tracer, tracer_in_launch
from tileops.language.value import as_dtype, as_tuple, describe, index_expr

__all__ = [
    "alloc_barrier", "barrier_arrive", "barrier_wait", "cp_async_barrier_noinc", "mbarrier_arrive",
    "mbarrier_arrive_expect_tx", "mbarrier_expect_tx", "mbarrier_wait_parity",
    "named_barrier_arrive",
]  # fmt: skip

_NAMED = 16  # barriers of the hardware (PTX ISA, bar.sync)
_WARP = 32
_MOST_ARRIVALS = (1 << 20) - 1  # of a phase (PTX ISA, mbarrier.init)


def alloc_barrier(arrive_count: object) -> BufferRef:
    """Barriers in shared memory, each with the number of threads that arrive in a phase.

    An int makes one barrier, a list an array of them.
    """
    tracer = tracer_in_launch("T.alloc_barrier")
    if tracer.in_parallel or tracer.conditional_depth:
        raise ProgramValueError("T.alloc_barrier belongs to the block, outside of loops and `if`")
    given = as_tuple(arrive_count)
    counts = tuple(int_of("T.alloc_barrier", "arrive_count", count) for count in given)
    if not counts or not all(0 < count <= _MOST_ARRIVALS for count in counts):
        raise ProgramValueError(
            "T.alloc_barrier: wrong arrive_count",
            expected=f"counts of 1 to {_MOST_ARRIVALS}",
            found=str(list(counts)),
        )
    name = tracer.take_name("barrier")
    buffer = tracer.new_buffer(
        name, (fold.const(len(counts)),), as_dtype("uint64"), scope="barrier"
    )
    tracer.define(buffer, permanent=False)
    tracer.emit(AllocBarriers(buffer, counts))
    return BufferRef(buffer)


def barrier_of(construct: str, given: object) -> tuple[Buffer, Expr]:
    """The array and the index of a barrier that a program names."""
    match given:
        case BufferRef(node=Buffer(scope="barrier") as node):
            if node.static_shape() != (1,):
                raise ProgramTypeError(
                    f"{construct} takes one barrier",
                    expected=f"{node.name}[index]",
                    found=node.name,
                )
            return node, ZERO
        case Element(ref=BufferRef(node=Buffer(scope="barrier") as node), indices=indices):
            return node, indices[0]
    raise ProgramTypeError(
        f"{construct} takes a barrier", expected="one of T.alloc_barrier", found=describe(given)
    )


def _step(construct: str, mbarrier: object) -> tuple[Tracer, Buffer, Expr]:
    tracer = tracer_in_launch(construct)
    if tracer.in_parallel:
        raise ProgramValueError(f"{construct} cannot be inside T.Parallel")
    return tracer, *barrier_of(construct, mbarrier)


def mbarrier_arrive(mbarrier: object, cta_id: object = None) -> None:
    """Every thread that runs this arrives once at ``mbarrier``."""
    if cta_id is not None:
        raise UnsupportedConstructError("T.mbarrier_arrive(cta_id=...): a cluster of blocks")
    tracer, node, slot = _step("T.mbarrier_arrive", mbarrier)
    tracer.emit(BarrierArrive(node, slot))


def mbarrier_wait_parity(mbarrier: object, parity: object) -> None:
    """Wait until the phase of ``parity`` (0 for the first, 1 for the second ...) has completed.

    Parity 1 passes before the first phase completes.
    """
    tracer, node, slot = _step("T.mbarrier_wait_parity", mbarrier)
    expr = index_expr(parity, "a parity")
    if isinstance(expr, Const) and expr.value not in (0, 1):
        raise ProgramValueError("T.mbarrier_wait_parity: a parity is 0 or 1", found=str(expr))
    tracer.emit(BarrierWait(node, slot, expr))


def barrier_arrive(mbarrier: object) -> None:
    """Every thread that runs this arrives once at ``mbarrier``."""
    mbarrier_arrive(mbarrier)


def barrier_wait(mbarrier: object, parity: object) -> None:
    """Wait until the phase of ``parity`` has completed; see T.mbarrier_wait_parity."""
    mbarrier_wait_parity(mbarrier, parity)


def mbarrier_expect_tx(mbarrier: object, tx: object) -> None:
    """The current phase also waits for ``tx`` bytes. T.tma_copy announces its own."""
    tracer, node, slot = _step("T.mbarrier_expect_tx", mbarrier)
    tracer.emit(BarrierExpect(node, slot, int_of("T.mbarrier_expect_tx", "tx", tx)))


def mbarrier_arrive_expect_tx(mbarrier: object, tx: object) -> None:
    """T.mbarrier_expect_tx, then T.mbarrier_arrive."""
    mbarrier_expect_tx(mbarrier, tx)
    mbarrier_arrive(mbarrier)


def cp_async_barrier_noinc(barrier: object) -> None:
    """Every thread arrives at ``barrier`` once its copies of T.ptx_cp_async are done."""
    tracer, node, slot = _step("T.cp_async_barrier_noinc", barrier)
    tracer.emit(BarrierArriveAfterCopies(node, slot))


def named_barrier_arrive(barrier_id: object, thread_count: object) -> None:
    """Arrive at a barrier of the hardware, for ``thread_count`` threads, without waiting."""
    named_barrier("T.named_barrier_arrive", barrier_id, thread_count, waits=False)


def named_barrier(construct: str, barrier_id: object, count: object, *, waits: bool) -> None:
    """Record a step on a barrier of the hardware."""
    tracer = tracer_in_launch(construct)
    number, threads = (
        int_of(construct, what, value)
        for what, value in (("barrier_id", barrier_id), ("the number of threads", count))
    )
    if not 0 <= number < _NAMED or threads < _WARP or threads % _WARP:
        raise ProgramValueError(
            f"{construct}: wrong barrier",
            expected=f"an id of 0 to {_NAMED - 1} and whole warps of threads",
            found=f"barrier {number} for {threads} threads",
        )
    tracer.emit(NamedBarrier(number, threads, waits))
