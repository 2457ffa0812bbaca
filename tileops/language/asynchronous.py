"""Copies and products that go on while the program does, and the waits for them."""

from __future__ import annotations

from dataclasses import dataclass

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.explicit import (
    CP_ASYNC,
    CopyLater,
    EndCopies,
    EndGemms,
    EndStores,
    GemmLater,
    GroupCopies,
    GroupedCopy,
)
from tileops.ir.expr import Expr, Load
from tileops.ir.stmt import For, Stmt, Store
from tileops.language.barriers import barrier_of
from tileops.language.buffers import BufferRef, Element
from tileops.language.copies import copy_regions
from tileops.language.index_arithmetic import is_one
from tileops.language.operands import int_of, one_of
from tileops.language.products import GemmWarpPolicy, gemm_of
from tileops.language.tracer import require_tracer, tracer_in_launch
from tileops.language.value import INT32, describe, to_expr

__all__ = [
    "access_ptr", "async_copy", "fence_proxy_async", "ptx_commit_group", "ptx_cp_async",
    "ptx_wait_group", "tma_copy", "tma_store_arrive", "tma_store_wait", "wait_wgmma",
    "wgmma_gemm",
]  # fmt: skip

_CP_ASYNC_BYTES = (4, 8, 16)  # of one instruction (PTX ISA, cp.async)


def tma_copy(
    src: object,
    dst: object,
    *,
    barrier: object = None,
    cluster_mask: object = None,
    leader_scope_threads: object = None,
    eviction_policy: object = None,
    annotations: object = None,
) -> None:
    """Start a copy by the tensor memory accelerator: from a tensor to shared memory, or back.

    A copy to shared memory adds its bytes to those that the current phase of ``barrier`` waits for;
    nobody arrives. A copy to a tensor has no barrier; T.tma_store_wait waits for it.
    """
    tracer = require_tracer("T.tma_copy")
    if cluster_mask is not None:
        raise UnsupportedConstructError("T.tma_copy(cluster_mask=...): a cluster of blocks")
    source, target = copy_regions("T.tma_copy", src, dst)
    scopes = source.buffer.scope, target.buffer.scope
    if scopes not in (("global", "shared"), ("shared", "global")):
        raise ProgramTypeError(
            "T.tma_copy is between a tensor and shared memory",
            found=f"{scopes[0]} to {scopes[1]}",
        )
    if source.dtype != target.dtype:
        raise ProgramTypeError(
            "T.tma_copy does not convert",
            expected=f"a destination of {source.dtype}",
            found=str(target.dtype),
        )
    if scopes[0] == "shared":
        if barrier is not None:
            raise ProgramValueError("T.tma_copy to a tensor has no barrier; use T.tma_store_wait")
        tracer.emit_tile("T.tma_copy", CopyLater(source, target))
        return
    if barrier is None:
        raise ProgramValueError("T.tma_copy to shared memory needs a barrier", expected="barrier=")
    tracer.emit_tile("T.tma_copy", CopyLater(source, target, *barrier_of("T.tma_copy", barrier)))


def tma_store_arrive() -> None:
    """A copy to a tensor is a group of its own already: this is nothing."""
    tracer_in_launch("T.tma_store_arrive")


def tma_store_wait(count: object = 0, read: bool = True) -> None:
    """Wait until at most ``count`` copies to tensors still read shared memory."""
    tracer = tracer_in_launch("T.tma_store_wait")
    tracer.emit(EndStores(_count("T.tma_store_wait", count)))


def fence_proxy_async() -> None:
    """Order writes to shared memory before asynchronous reads; tileops places its own fences."""
    tracer_in_launch("T.fence_proxy_async")


def _count(construct: str, value: object) -> int:
    number = int_of(construct, "the number in flight", value)
    if number < 0:
        raise ProgramValueError(f"{construct}: a negative number in flight", found=str(number))
    return number


# -- products --------------------------------------------------------------------------------------
def wgmma_gemm(
    A: object,
    B: object,
    C: object,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: object = False,
    annotations: object = None,
) -> None:
    """Start ``C (+)= op(A) @ op(B)``, as T.gemm; T.wait_wgmma waits for it."""
    tracer = require_tracer("T.wgmma_gemm")
    g = gemm_of("T.wgmma_gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum)
    later = GemmLater(g.a, g.b, g.c, g.transpose_a, g.transpose_b, g.clear, g.policy)
    tracer.emit_tile("T.wgmma_gemm", later)


def wait_wgmma(id: object) -> None:
    """Wait until at most ``id`` of the products that this group started are in flight."""
    tracer_in_launch("T.wait_wgmma").emit(EndGemms(_count("T.wait_wgmma", id)))


# -- copies by threads -----------------------------------------------------------------------------
def async_copy(
    src: object,
    dst: object,
    *,
    coalesced_width: object = None,
    annotations: object = None,
    loop_layout: object = None,
) -> None:
    """Start a copy from a tensor to shared memory by cp.async, as one group."""
    tracer = require_tracer("T.async_copy")
    source, target = copy_regions("T.async_copy", src, dst)
    if (source.buffer.scope, target.buffer.scope) != ("global", "shared"):
        raise ProgramTypeError(
            "T.async_copy is from a tensor to shared memory",
            found=f"{source.buffer.scope} to {target.buffer.scope}",
        )
    tracer.emit_tile("T.async_copy", GroupedCopy(source, target))


def ptx_commit_group() -> None:
    """Make one group of the copies of T.ptx_cp_async since the last group."""
    tracer_in_launch("T.ptx_commit_group").emit(GroupCopies())


def ptx_wait_group(n: object) -> None:
    """Wait until at most ``n`` groups of copies are in flight."""
    tracer_in_launch("T.ptx_wait_group").emit(EndCopies(_count("T.ptx_wait_group", n)))


@dataclass(frozen=True)
class AccessPointer:
    """Where T.ptx_cp_async or a function of T.call_extern reads (r) or writes (w)."""

    element: Element
    access: str


def access_ptr(
    base: object,
    access_type: str = "r",
    *extents: object,
    offset: object = 0,
    extent: object = None,
    ignore_last_ndim: object = 0,
) -> AccessPointer:
    """The place of an element of a buffer, for T.ptx_cp_async and T.call_extern."""
    require_tracer("T.access_ptr")
    one_of("T.access_ptr", "access_type", access_type, ("r", "w", "rw"))
    if offset != 0 or ignore_last_ndim != 0:
        raise UnsupportedConstructError("T.access_ptr with an offset; index the element")
    if isinstance(base, BufferRef):
        base = base[(0,) * base.ndim]
    if not isinstance(base, Element):
        raise ProgramTypeError("T.access_ptr takes an element of a buffer", found=describe(base))
    return AccessPointer(base, access_type)


def ptx_cp_async(dst: object, src: object, elems: object, predicate: object = None) -> None:
    """Start a copy of ``elems`` neighbours from a tensor to shared memory, by each thread.

    Where ``predicate`` is false, they become 0.
    """
    tracer = tracer_in_launch("T.ptx_cp_async")
    for what, given in (("destination", dst), ("source", src)):
        if not isinstance(given, AccessPointer):
            raise ProgramTypeError(
                f"T.ptx_cp_async: the {what} is a place", expected="T.access_ptr(element, ...)",
                found=describe(given),
            )  # fmt: skip
    assert isinstance(dst, AccessPointer)
    assert isinstance(src, AccessPointer)
    to, origin = dst.element, src.element
    count = int_of("T.ptx_cp_async", "elems", elems)
    scopes = origin.ref.node.scope, to.ref.node.scope
    if scopes != ("global", "shared") or origin.ref.node.dtype != to.ref.node.dtype:
        raise ProgramTypeError(
            "T.ptx_cp_async is from a tensor to shared memory of its dtype",
            found=f"{origin.ref.describe()} to {to.ref.describe()}",
        )
    if count * to.ref.node.dtype.bits // 8 not in _CP_ASYNC_BYTES:
        raise ProgramValueError(
            "T.ptx_cp_async copies 4, 8 or 16 bytes",
            found=f"{count} elements of {to.ref.node.dtype}",
        )
    if not all(is_one(s) for r in (origin, to) for s in (r.ref.node.strides or ())[-1:]):
        raise UnsupportedConstructError("T.ptx_cp_async of a tensor whose last stride is not 1")
    var = tracer.new_var("v", INT32)

    def behind(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*indices[:-1], fold.add(indices[-1], var))

    value: Expr = Load(origin.ref.node.dtype, origin.ref.node, behind(origin.indices))
    if predicate is not None:
        when = fold.truth(to_expr(predicate, "the predicate"))
        value = fold.select(when, value, fold.const(0, value.dtype))
    store: Stmt = Store(to.ref.node, behind(to.indices), value, loc=tracer.location)
    tracer.define(var, bounded=True)
    loop = For("vectorized", var, fold.const(0), fold.const(count), (store,), 0, (CP_ASYNC,))
    tracer.emit(loop)
