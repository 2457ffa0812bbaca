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
from tileops.language.tracer import LaunchState, Tracer, here, require_tracer
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
            raise ProgramValueError(
                "T.Kernel cannot stand inside another T.Kernel", location=here()
            )
        if tracer.conditional_depth:
            raise ProgramValueError(
                "T.Kernel cannot stand under a condition that is known only at run time",
                location=here(),
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


def Kernel(*blocks: object, threads: object = None, prelude: object = None) -> KernelFrame:
    """A launch of a grid of up to 3 extents; ``with T.Kernel(gx, gy, threads=128) as (bx, by)``.

    Without an extent it is one block.

    ``threads`` is an int or up to three ints (default 128); it sets the number of warps, not the
    meaning.
    """
    tracer = require_tracer("T.Kernel")
    if prelude is not None:
        raise UnsupportedConstructError("T.Kernel(prelude=...) inserts C text", location=here())
    if len(blocks) > 3:
        raise ProgramValueError(
            "T.Kernel takes up to 3 grid extents", found=str(len(blocks)), location=here()
        )
    grid = tuple(index_expr(b, "a grid extent of T.Kernel") for b in blocks or (1,))
    for extent in grid:
        if has_load(extent):
            raise UnsupportedConstructError(
                "a grid extent of T.Kernel that is read from a tensor; pass it as a scalar "
                "argument",
                location=here(),
            )
        tracer.check_expr_alive(extent)
        if isinstance(extent, Const) and extent.value < 0:
            raise ProgramValueError(
                "a grid extent of T.Kernel is negative", found=str(extent.value), location=here()
            )
    return KernelFrame(tracer, grid, _thread_extents(threads))


def _thread_extents(threads: object) -> tuple[int, ...]:
    if threads is None:
        return (_DEFAULT_THREADS,)
    parts = tuple(threads) if isinstance(threads, (tuple, list)) else (threads,)
    if len(parts) > 3:
        raise ProgramValueError(
            "threads has at most three extents", found=repr(threads), location=here()
        )
    extents = []
    for part in parts:
        number = as_int(part)
        if number is None:
            if isinstance(part, Value):
                number = (
                    _DEFAULT_THREADS  # a size constant of a symbolic trace; its number comes later
                )
            else:
                raise ProgramTypeError(
                    "threads must be an integer", found=repr(part), location=here()
                )
        if number <= 0:
            raise ProgramValueError("threads must be positive", found=str(number), location=here())
        extents.append(number)
    return tuple(extents)


def get_block_binding(dim: int = 0) -> Value:
    """The block index along grid dimension ``dim`` of the current T.Kernel."""
    state = require_tracer("T.get_block_binding").require_launch("T.get_block_binding")
    dim = arguments.number("T.get_block_binding", "dim", dim)
    if not 0 <= dim < len(state.block_vars):
        raise ProgramValueError(
            f"the grid has no dimension {dim}",
            expected=f"0..{len(state.block_vars) - 1}",
            location=here(),
        )
    return Value(state.block_vars[dim])


def get_block_bindings() -> tuple[Value, ...]:
    """All block indices of the current T.Kernel."""
    state = require_tracer("T.get_block_bindings").require_launch("T.get_block_bindings")
    return tuple(Value(v) for v in state.block_vars)
