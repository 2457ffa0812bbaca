"""T.Kernel, the grid of blocks that runs a body; the indices of blocks and threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, const_value
from tileops.ir.stmt import Assert, Intrinsic, Launch
from tileops.ir.threads import MOST_BLOCKS
from tileops.language.barriers import named_barrier
from tileops.language.missing import by_name
from tileops.language.operands import int_of
from tileops.language.tracer import (
    LaunchState,
    ThreadIndices,
    Tracer,
    require_launch,
    require_tracer,
)
from tileops.language.value import INT32, Value, as_int, as_tuple, has_load, index_expr

__all__ = [
    "Kernel", "get_block_binding", "get_block_bindings", "get_thread_binding",
    "get_thread_bindings", "sync_threads", "thread_binding",
]  # fmt: skip

_DEFAULT_THREADS = 128
_AXES = "xyz"
_THREAD_TAGS = [f"threadIdx.{axis}" for axis in _AXES]
SYNC = "sync_threads"
SYNC_WARP = "sync_warp"


class BlockIndex(Value):
    """A block index. ``with T.Kernel(n) as (bx,)`` unpacks the only one."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Value]:
        yield self


@dataclass(eq=False)
class KernelFrame:
    """The context manager that T.Kernel returns. Entering it starts a launch."""

    tracer: Tracer
    grid: tuple[Expr, ...]
    threads: tuple[int, ...]
    cluster: tuple[int, ...]

    def __enter__(self) -> Value | tuple[Value, ...]:
        tracer = self.tracer
        if tracer.launch is not None:
            raise ProgramValueError("T.Kernel cannot be inside another T.Kernel")
        if tracer.conditional_depth:
            raise ProgramValueError(
                "T.Kernel cannot be under a condition that is known only at run time"
            )
        names = [tracer.take_name(f"b{axis}") for axis in _AXES[: len(self.grid)]]
        block_vars = tuple(tracer.new_var(name, INT32) for name in names)
        tracer.launch = LaunchState(block_vars, self.threads, cluster=self.cluster)
        if math.prod(self.cluster) > 1:
            tracer.launch.attrs["cluster"] = "x".join(map(str, self.cluster))
        tracer.open_region("launch")
        for var in block_vars:
            tracer.define(var, bounded=True)
        for view in tracer.pending_views:
            tracer.emit_view(view)
        indices = tuple(BlockIndex(v) for v in block_vars)
        return indices[0] if len(indices) == 1 else indices

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        tracer, state = self.tracer, self.tracer.require_launch("T.Kernel")
        region = tracer.close_region()
        tracer.launch = None
        tracer.lanes.append(ThreadIndices(self.threads, tuple(sorted(state.lanes.items()))))
        tracer.emit_launch(
            Launch(
                self.grid,
                state.block_vars,
                math.prod(self.threads),
                region.body,
                tuple(sorted(state.attrs.items())),
                tuple(state.safe_values.items()),
                tuple(state.placements.values()),
                loc=region.loc,
            )
        )


def Kernel(
    *blocks: object,
    threads: object = None,
    prelude: object = None,
    cluster_dims: object = None,
    **others: object,
) -> KernelFrame:
    """A launch of a grid of up to 3 extents; ``with T.Kernel(gx, gy, threads=128) as (bx, by)``.

    Without an extent it is one block.

    ``threads`` is an int or up to three ints (default 128); it sets the number of warps, not the
    meaning. ``cluster_dims`` are the blocks of a cluster along each extent, at most 8 in all.
    ``others`` are arguments of other languages: the error says what to write instead.
    """
    tracer = require_tracer("T.Kernel")
    for word, value in others.items():
        raise _unknown_argument(word, value)
    if prelude is not None:
        raise UnsupportedConstructError("T.Kernel(prelude=...) inserts C text")
    if len(blocks) > 3:
        raise ProgramValueError("T.Kernel takes up to 3 grid extents", found=str(len(blocks)))
    grid = tuple(index_expr(b, "a grid extent of T.Kernel") for b in blocks or (1,))
    for extent in grid:
        if has_load(extent):
            raise UnsupportedConstructError(
                "a grid extent of T.Kernel that is read from a tensor; pass it as a scalar argument"
            )
        tracer.check_expr_alive(extent)
        if isinstance(extent, Const) and extent.value < 0:
            raise ProgramValueError(
                "a grid extent of T.Kernel is negative", found=str(extent.value)
            )
    extents = as_tuple(_DEFAULT_THREADS if threads is None else threads)
    if len(extents) > 3:
        raise ProgramValueError("threads has at most three extents", found=repr(threads))
    cluster = _cluster(tracer, grid, cluster_dims)
    return KernelFrame(tracer, grid, tuple(map(_thread_count, extents)), cluster)


def _cluster(tracer: Tracer, grid: tuple[Expr, ...], given: object) -> tuple[int, ...]:
    """The blocks of a cluster along the dimensions of ``grid``, which they must divide."""
    sizes = [int_of("T.Kernel", "cluster_dims", s) for s in as_tuple(1 if given is None else given)]
    sizes += [1] * (len(grid) - len(sizes))
    if min(sizes) < 1 or math.prod(sizes) > MOST_BLOCKS or set(sizes[len(grid) :]) - {1}:
        raise ProgramValueError(
            "T.Kernel: wrong cluster_dims",
            expected=f"up to {len(grid)} positive numbers, of at most {MOST_BLOCKS} blocks in all",
            found=str(tuple(sizes)),
        )
    for extent, size in zip(grid, sizes, strict=False):
        rest = fold.binary("floormod", extent, fold.const(size, extent.dtype))
        message = f"T.Kernel: clusters of {size} blocks do not divide a grid of {extent.text()}"
        if (known := const_value(rest)) is None:
            fits = fold.binary("eq", rest, fold.const(0, extent.dtype))
            tracer.host_asserts.append(Assert(fits, message, host=True, loc=tracer.location))
        elif known:
            raise ProgramValueError(message, expected=f"a multiple of {size}")
    return tuple(sizes[: len(grid)])


_CLUSTERS = ("cluster", "cluster_dim", "cluster_size", "cluster_shape", "num_ctas")
# What to write for an argument of a launch in other languages, and its names there.
_ELSEWHERE = """
write threads={value} <- thread num_threads nthreads n_threads block block_size block_dim block_dims
    blockdim blockDim threads_per_block num_threads_per_block numthreads
a warp has 32 threads: threads={of_warps} <- num_warps warps n_warps
the extents of the grid come first: T.Kernel({extents}, threads=128) <- grid grid_dim grid_dims
    grid_size griddim gridDim blocks blocks_per_grid num_blocks n_blocks nblocks
the pipeline belongs to a loop, for k in T.Pipelined(n, num_stages={value}) <- num_stages stages
shared memory is what T.alloc_shared takes <- shared smem shared_mem shared_memory smem_size
the kernel runs where its arguments are; leave it out <- is_cpu device target
the kernel runs on torch's current stream; leave it out <- stream
the registers of a thread follow from T.annotate_min_blocks_per_sm <- maxnreg max_registers num_regs
    min_blocks_per_sm
the name belongs to the decorator, @tileops.jit(name=...) <- name
"""


def _unknown_argument(word: str, value: object) -> ProgramTypeError:
    if word in _CLUSTERS:
        return ProgramTypeError(
            f"T.Kernel has no argument {word!r}; a cluster of blocks is cluster_dims=...",
            expected="T.Kernel(grid extents, threads=128, cluster_dims=(2, 1))",
        )
    number = as_int(value)
    extents = as_tuple(value)
    shown = ["..." if as_int(e) is None else str(as_int(e)) for e in extents]
    template = by_name(_ELSEWHERE).get(word, "")
    instead = template.format(
        value="..." if number is None else number,
        of_warps="32 * warps" if number is None else 32 * number,
        extents=", ".join(shown),
    )
    return ProgramTypeError(
        f"T.Kernel has no argument {word!r}" + (f"; {instead}" if instead else ""),
        expected="T.Kernel(grid extents, threads=128)",
    )


def _thread_count(part: object) -> int:
    number = as_int(part)
    if number is None and isinstance(part, Value):
        return _DEFAULT_THREADS  # a size constant of a symbolic trace; its number comes later
    if number is None:
        raise ProgramTypeError("threads must be an integer", found=repr(part))
    if number <= 0:
        raise ProgramValueError("threads must be positive", found=str(number))
    return number


# -- indices ---------------------------------------------------------------------------------------
def _dimension(construct: str, of: str, dim: object, count: int) -> int:
    """``dim``, which must be one of the ``count`` dimensions of ``of``."""
    number = int_of(construct, "dim", dim)
    if not 0 <= number < count:
        raise ProgramValueError(f"{of} no dimension {number}", expected=f"0..{count - 1}")
    return number


def get_block_binding(dim: int = 0) -> Value:
    """The block index along grid dimension ``dim`` of the current T.Kernel."""
    state = require_launch("T.get_block_binding")
    dim = _dimension("T.get_block_binding", "the grid has", dim, len(state.block_vars))
    return Value(state.block_vars[dim])


def get_block_bindings() -> tuple[Value, ...]:
    """All block indices of the current T.Kernel."""
    state = require_launch("T.get_block_bindings")
    return tuple(Value(v) for v in state.block_vars)


def get_thread_binding(dim: int = 0) -> Value:
    """The thread index along ``dim``, which may only choose the elements that a thread handles."""
    tracer, state = require_tracer("T.get_thread_binding"), require_launch("T.get_thread_binding")
    threads = "the threads of T.Kernel have"
    dim = _dimension("T.get_thread_binding", threads, dim, len(state.threads))
    if dim not in state.lanes:
        state.lanes[dim] = tracer.define(
            tracer.new_var(tracer.take_name(f"t{_AXES[dim]}"), INT32),
            bounded=True,
            permanent=True,
        )
    return Value(state.lanes[dim])


def thread_binding(start: object, stop: object = None, thread: str = "threadIdx.x") -> Value:
    """The thread index along ``thread``, over all threads that ``T.Kernel`` was given there.

    UnsupportedConstructError for a part of them, or for a block's index.
    """
    first, end = (0, start) if stop is None else (start, stop)
    state = require_launch("T.thread_binding")
    dim = _THREAD_TAGS.index(thread) if thread in _THREAD_TAGS else -1
    threads = state.threads[dim] if 0 <= dim < len(state.threads) else 1
    if dim < 0 or first != 0 or end != threads:
        raise UnsupportedConstructError(
            f"T.thread_binding({first}, {end}, {thread!r})",
            expected=f"all threads of the block: T.thread_binding(0, {threads}, thread=...) with "
            "threadIdx.x, threadIdx.y or threadIdx.z",
        )
    return get_thread_binding(dim)


def get_thread_bindings() -> tuple[Value, ...]:
    """The thread indices along all dimensions that T.Kernel was given threads for."""
    state = require_launch("T.get_thread_bindings")
    return tuple(get_thread_binding(d) for d in range(len(state.threads)))


def sync_threads(barrier_id: object = None, arrive_count: object = None) -> None:
    """A barrier of the block; it ends a run of per-thread statements and is nothing else.

    With ``barrier_id`` it is a barrier of the hardware for ``arrive_count`` threads.
    """
    if barrier_id is not None:
        count = math.prod(require_launch("T.sync_threads").threads)
        threads = count if arrive_count is None else arrive_count
        named_barrier("T.sync_threads", barrier_id, threads, waits=True)
        return
    tracer = require_tracer("T.sync_threads")
    if tracer.launch is not None:
        tracer.emit(Intrinsic(SYNC))
