"""Owns T.Kernel: the grid of blocks that runs a body."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import TracebackType

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir.expr import Const, Expr
from tileops.ir.stmt import Launch
from tileops.language import arguments
from tileops.language.lanes import over_lanes
from tileops.language.tracer import LaunchState, Tracer, require_tracer
from tileops.language.value import Value, as_int, has_load, index_expr

_DEFAULT_THREADS = 128
_NAMES = ("bx", "by", "bz")


class BlockIndex(Value):
    """A block index. ``with T.Kernel(n) as (bx,)`` unpacks the only one."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Value]:
        yield self


class KernelFrame:
    """The context manager that T.Kernel returns. Entering it starts a launch."""

    def __init__(self, tracer: Tracer, grid: tuple[Expr, ...], threads: tuple[int, ...]) -> None:
        self._tracer = tracer
        self._grid = grid
        self._threads = threads
        self._state: LaunchState | None = None

    def __enter__(self) -> Value | tuple[Value, ...]:
        tracer = self._tracer
        if tracer.launch is not None:
            raise ProgramValueError("T.Kernel cannot stand inside another T.Kernel")
        if tracer.conditional_depth:
            raise ProgramValueError(
                "T.Kernel cannot stand under a condition that is known only at run time"
            )
        names = [tracer.take_name(default) for default in _NAMES[: len(self._grid)]]
        dtypes = [DType("int32")] * len(self._grid)
        block_vars = tuple(tracer.new_var(n, t) for n, t in zip(names, dtypes, strict=True))
        self._state = tracer.launch = LaunchState(block_vars, self._threads)
        tracer.open_region("launch")
        for var in block_vars:
            tracer.define(var, bounded=True)
        for view in tracer.pending_views:
            tracer.emit_view(view)
        indices = tuple(BlockIndex(v) for v in block_vars)
        return indices[0] if len(indices) == 1 else indices

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            return
        tracer, state = self._tracer, self._state
        assert state is not None
        region = tracer.region
        loc = region.loc if region is not None else None
        body = over_lanes(tracer.close_region(), state.lanes, self._threads)
        tracer.launch = None
        tracer.emit_launch(
            Launch(
                self._grid,
                state.block_vars,
                math.prod(self._threads),
                body,
                tuple(sorted(state.attrs.items())),
                tuple(state.safe_values.items()),
                tuple(state.placements.values()),
                loc=loc,
            )
        )


def Kernel(
    *blocks: object, threads: object = None, prelude: object = None, **others: object
) -> KernelFrame:
    """A launch of a grid of up to 3 extents; ``with T.Kernel(gx, gy, threads=128) as (bx, by)``.

    Without an extent it is one block.

    ``threads`` is an int or up to three ints (default 128); it sets the number of warps, not the
    meaning. ``others`` are the names of other languages: the error says what stands for each here.
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
    return KernelFrame(tracer, grid, _thread_extents(threads))


_CLUSTERS = ("cluster", "cluster_dim", "cluster_dims", "cluster_size", "cluster_shape", "num_ctas")
# What other languages call an argument of a launch, by what stands for it here.
_ELSEWHERE = {
    "write threads={value}": "thread num_threads nthreads n_threads block block_size "
    "block_dim block_dims blockdim blockDim threads_per_block num_threads_per_block numthreads",
    "a warp has 32 threads: threads={of_warps}": "num_warps warps n_warps",
    "the extents of the grid come first: T.Kernel({extents}, threads=128)": "grid grid_dim "
    "grid_dims grid_size griddim gridDim blocks blocks_per_grid num_blocks n_blocks nblocks",
    "the pipeline belongs to a loop, for k in T.Pipelined(n, num_stages={value})": "num_stages "
    "stages",
    "shared memory is what T.alloc_shared takes": "shared smem shared_mem shared_memory smem_size",
    "the kernel runs where its arguments are; leave it out": "is_cpu device target",
    "the kernel runs on torch's current stream; leave it out": "stream",
    "the registers of a thread follow from T.annotate_min_blocks_per_sm": "maxnreg max_registers "
    "num_regs min_blocks_per_sm",
    "the name belongs to the decorator, @tileops.jit(name=...)": "name",
}


def _unknown_argument(word: str, value: object) -> ProgramTypeError | UnsupportedConstructError:
    if word in _CLUSTERS:
        return UnsupportedConstructError(f"T.Kernel({word}=...): a cluster of blocks; leave it out")
    number = as_int(value)
    extents = value if isinstance(value, (tuple, list)) else (value,)
    shown = ["..." if as_int(e) is None else str(as_int(e)) for e in extents]
    instead = next((s for s, words in _ELSEWHERE.items() if word in words.split()), "").format(
        value="..." if number is None else number,
        of_warps="32 * warps" if number is None else 32 * number,
        extents=", ".join(shown),
    )
    return ProgramTypeError(
        f"T.Kernel has no argument {word!r}" + (f"; {instead}" if instead else ""),
        expected="T.Kernel(grid extents, threads=128)",
    )


def _thread_extents(threads: object) -> tuple[int, ...]:
    if threads is None:
        return (_DEFAULT_THREADS,)
    parts = tuple(threads) if isinstance(threads, (tuple, list)) else (threads,)
    if len(parts) > 3:
        raise ProgramValueError("threads has at most three extents", found=repr(threads))
    extents = []
    for part in parts:
        number = as_int(part)
        if number is None:
            if isinstance(part, Value):
                number = (
                    _DEFAULT_THREADS  # a size constant of a symbolic trace; its number comes later
                )
            else:
                raise ProgramTypeError("threads must be an integer", found=repr(part))
        if number <= 0:
            raise ProgramValueError("threads must be positive", found=str(number))
        extents.append(number)
    return tuple(extents)


def get_block_binding(dim: int = 0) -> Value:
    """The block index along grid dimension ``dim`` of the current T.Kernel."""
    state = require_tracer("T.get_block_binding").require_launch("T.get_block_binding")
    dim = arguments.number("T.get_block_binding", "dim", dim)
    if not 0 <= dim < len(state.block_vars):
        raise ProgramValueError(
            f"the grid has no dimension {dim}", expected=f"0..{len(state.block_vars) - 1}"
        )
    return Value(state.block_vars[dim])


def get_block_bindings() -> tuple[Value, ...]:
    """All block indices of the current T.Kernel."""
    state = require_tracer("T.get_block_bindings").require_launch("T.get_block_bindings")
    return tuple(Value(v) for v in state.block_vars)
