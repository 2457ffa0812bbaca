"""Clusters of blocks: their barrier, their ranks, and copies into each other's shared memory."""

from __future__ import annotations

import math
from dataclasses import replace

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region, const_value
from tileops.ir.stmt import ClusterBarrier, Copy, If, PeerView
from tileops.language.copies import copy_regions
from tileops.language.launch import Kernel, KernelFrame
from tileops.language.operands import int_of
from tileops.language.tracer import Tracer, require_tracer
from tileops.language.value import INT32, Value, index_expr

__all__ = [
    "ClusterKernel", "block_rank_in_cluster", "cluster_arrive", "cluster_arrive_relaxed",
    "cluster_sync", "cluster_wait", "copy_cluster",
]  # fmt: skip


def ClusterKernel(
    *blocks: object, cluster_dims: object, threads: object = None, prelude: object = None
) -> KernelFrame:
    """T.Kernel with ``cluster_dims``."""
    return Kernel(*blocks, threads=threads, prelude=prelude, cluster_dims=cluster_dims)


def _tracer_of(construct: str) -> Tracer:
    tracer = require_tracer(construct)
    tracer.require_launch(construct)
    if tracer.in_parallel:
        raise ProgramValueError(f"{construct} is for threads and cannot be inside T.Parallel")
    return tracer


def _rank(construct: str) -> Expr:
    state = require_tracer(construct).require_launch(construct)
    rank: Expr = fold.const(0)
    size = 1
    for var, count in zip(state.block_vars, state.cluster, strict=True):
        at = fold.binary("floormod", var, fold.const(count))
        rank = fold.add(rank, fold.mul(at, fold.const(size)))
        size *= count
    return rank


def block_rank_in_cluster() -> Value:
    """The number of the block in its cluster; the grid's first dimension runs fastest."""
    return Value(_rank("T.block_rank_in_cluster"))


def cluster_arrive() -> None:
    """Each thread arrives at the cluster's barrier: what it wrote before is seen after the wait."""
    _tracer_of("T.cluster_arrive").emit(ClusterBarrier(True, False))


# One that orders more memory than it must is right.
cluster_arrive_relaxed = cluster_arrive


def cluster_wait() -> None:
    """Each thread waits until all threads of the cluster have arrived."""
    _tracer_of("T.cluster_wait").emit(ClusterBarrier(False, True))


def cluster_sync() -> None:
    """All threads of all blocks of the cluster wait for each other."""
    _tracer_of("T.cluster_sync").emit(ClusterBarrier(True, True))


def copy_cluster(
    src: object,
    dst: object,
    *,
    dst_block: object = None,
    cluster_mask: object = None,
    remote_barrier: object = None,
    eviction_policy: object = None,
    coalesced_width: object = None,
    loop_layout: object = None,
    annotations: object = None,
) -> None:
    """A copy into shared memory of other blocks of the cluster, to the same tile ``dst`` there.

    With ``dst_block`` it is into the block of that number; T.cluster_sync says when it is there. A
    number that no block of the cluster has copies nothing, as what is out of bounds elsewhere.
    With ``cluster_mask``, a bit for each block, the first of these blocks copies ``src`` for all of
    them, and each other block for itself; the whole cluster waits before and after.
    """
    construct = "T.copy_cluster"
    tracer = _tracer_of(construct)
    if remote_barrier is not None:
        raise UnsupportedConstructError(
            f"{construct}(remote_barrier=...); write T.cluster_sync() where the barrier is awaited"
        )
    source, target = copy_regions(construct, src, dst)
    if target.buffer.scope != "shared":
        raise ProgramTypeError(
            f"{construct} is into a shared tile",
            found=f"{target.buffer.name} is {target.buffer.scope}",
        )
    if (dst_block is None) == (cluster_mask is None):
        raise ProgramTypeError(f"{construct} takes dst_block or cluster_mask, one of them")
    size = math.prod(tracer.require_launch(construct).cluster)
    if dst_block is not None:
        block = fold.cast(index_expr(dst_block, "dst_block"), INT32)
        tracer.check_expr_alive(block)
        _emit_to_one(tracer, source, target, block, size)
        return
    mask = int_of(construct, "cluster_mask", cluster_mask)
    if not 0 < mask < 1 << size:
        raise ProgramValueError(
            f"{construct}: wrong cluster_mask", expected=f"bits of the {size} blocks of a cluster",
            found=bin(mask),
        )  # fmt: skip
    _emit_to_some(tracer, source, target, [n for n in range(size) if mask >> n & 1])


def _emit_to_one(tracer: Tracer, source: Region, target: Region, block: Expr, size: int) -> None:
    """The copy into one block, where the cluster of ``size`` has it."""
    there = fold.binary(
        "land", fold.binary("le", fold.const(0), block), fold.binary("lt", block, fold.const(size))
    )
    known = const_value(there)
    if known == 0:
        raise ProgramValueError(
            "T.copy_cluster: wrong dst_block", expected=f"0 to {size - 1}", found=block.text()
        )
    if known:
        _emit_to_peer(tracer, source, target, block)
        return
    tracer.open_region("then")
    _emit_to_peer(tracer, source, target, block)
    copies = tracer.close_region().body
    tracer.emit(If(there, copies))


def _emit_to_some(tracer: Tracer, source: Region, target: Region, blocks: list[int]) -> None:
    """The copy by the first of ``blocks`` into each of them; other blocks copy for themselves."""
    rank = _rank("T.copy_cluster")

    def those(numbers: list[int]) -> Expr:
        found: Expr = fold.const(False)
        for n in numbers:
            found = fold.binary("lor", found, fold.binary("eq", rank, fold.const(n)))
        return found

    tracer.emit(ClusterBarrier(True, True))
    tracer.open_region("then")
    for n in blocks:
        _emit_to_peer(tracer, source, target, fold.const(n))
    copies = tracer.close_region().body
    own = Copy(source, target, loc=tracer.location)
    tracer.emit(If(those(blocks[:1]), copies))
    tracer.emit(If(fold.unary("not", those(blocks)), (own,)))
    tracer.emit(ClusterBarrier(True, True))


def _emit_to_peer(tracer: Tracer, source: Region, target: Region, block: Expr) -> None:
    buffer = target.buffer
    number = tracer.new_var(buffer.name, INT32).id
    peer = Buffer(number, f"peer_{buffer.name}", buffer.shape, buffer.dtype, "shared")
    tracer.emit_view(PeerView(peer, buffer, block))
    tracer.emit(Copy(source, replace(target, buffer=peer)))
