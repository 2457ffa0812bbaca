"""The loop forms of the language, which the front end opens and closes around a body."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tileops.dtypes import DType
from tileops.errors import ProgramSyntaxError, ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Var
from tileops.ir.stmt import Body, For
from tileops.ir.stmt import Parallel as ParallelStmt
from tileops.ir.walk import walk_expr
from tileops.language.buffers import ZERO
from tileops.language.index_arithmetic import constant_difference, fits_its_type
from tileops.language.operands import int_of
from tileops.language.tracer import Tracer, require_tracer
from tileops.language.value import (
    INT32,
    INT64,
    Value,
    as_int,
    bind,
    describe,
    has_load,
    index_expr,
    to_expr,
)
from tileops.location import Location

__all__ = ["Parallel", "Pipelined", "grid", "serial", "unroll", "vectorized"]

# The free name that each rewritten function has.
REWRITTEN = "__tileops_hooks__"


UINT64 = DType("uint64")

_UNSIGNED = {INT32: DType("uint32"), INT64: UINT64}


@dataclass(frozen=True)
class Axis:
    """One loop variable: it runs from ``start`` to ``stop``, or counts the steps between them."""

    start: Expr
    stop: Expr
    step: int = 1


@dataclass(frozen=True)
class Rounds:
    """A loop of step 1 from ``start`` to ``stop``; ``value`` is the user's of its variable."""

    dtype: DType
    start: Expr
    stop: Expr
    value: Callable[[Expr], Expr]


@dataclass(eq=False, repr=False)
class LoopFrame:
    """A loop before its body is known: what ``for ... in`` iterates in a kernel function.

    ``kind`` is that of a For, or "parallel".
    """

    construct: str
    kind: str
    axes: tuple[Axis, ...]
    stages: int = 0
    hints: tuple[tuple[str, str], ...] = ()
    _vars: tuple[Var, ...] = field(default=(), init=False)
    _rounds: tuple[Rounds, ...] = field(default=(), init=False)

    def _refuse(self, *_: object) -> NoReturn:
        # A rewritten program never asks for an iterator of the loop in its own `for`.
        asks = sys._getframe(1)
        if REWRITTEN in asks.f_code.co_freevars:
            raise ProgramTypeError(
                f"the rounds of {self.construct} run in the kernel: enumerate, zip, reversed, "
                "list, sum, map, `in`, comprehensions and the like cannot go through them",
                expected=f"a `for` over one of {_LOOPS}; what is counted or taken along is "
                "computed from its variable",
            )
        raise ProgramSyntaxError(
            f"a loop over {self.construct} is in a plain Python function; decorate the function "
            "with @T.macro"
        )

    __iter__ = __reversed__ = __contains__ = __getitem__ = __len__ = _refuse

    def open(self, tracer: Tracer, names: Sequence[str]) -> tuple[Value, ...]:
        """Start recording the body; the values of the loop variables."""
        self._check_place(tracer)
        if len(names) != len(self.axes):
            raise ProgramValueError(
                f"{self.construct} has {len(self.axes)} loop variable(s)",
                found=f"{len(names)} in the `for`",
            )
        self.axes = tuple(_evaluated_once(axis) for axis in self.axes)
        self._rounds = tuple(rounds(tracer, axis) for axis in self.axes)
        dtypes = [r.dtype for r in self._rounds]
        self._vars = tuple(map(tracer.new_var, names, dtypes))
        if self.kind == "parallel":
            extents = [a.stop for a in self.axes]
            tracer.open_region("parallel", tuple(zip(self._vars, extents, strict=True)))
        for var, axis in zip(self._vars, self.axes, strict=True):
            if self.kind != "parallel":
                tracer.open_region("for")
            tracer.define(var, bounded=fits_its_type(tracer, axis.start, axis.stop))
        return tuple(Value(r.value(v)) for v, r in zip(self._vars, self._rounds, strict=True))

    def _check_place(self, tracer: Tracer) -> None:
        tracer.require_launch(self.construct)
        if not tracer.in_parallel:
            return
        if self.kind == "pipelined":
            raise ProgramValueError("T.Pipelined cannot be inside T.Parallel")
        around = tracer.regions[-1]
        if self.kind == "parallel" and (around.kind != "parallel" or around.statements):
            raise _imperfect()

    def close(self, tracer: Tracer) -> None:
        """Finish the body and record the loop."""
        if self.kind == "parallel":
            region = tracer.close_region()
            tracer.emit(self._nest(region.body, region.loc))
            return
        for var, r in zip(reversed(self._vars), reversed(self._rounds), strict=True):
            region = tracer.close_region()
            options = (self.stages, self.hints)
            tracer.emit(For(self.kind, var, r.start, r.stop, region.body, *options, loc=region.loc))

    def _nest(self, body: Body, loc: Location | None) -> ParallelStmt:
        """The statement of a T.Parallel loop: one with the loop that is its only statement."""
        nested = [stmt for stmt in body if isinstance(stmt, ParallelStmt)]
        if nested and len(body) > 1:
            raise _imperfect()
        extents = tuple(axis.stop for axis in self.axes)
        for inner in nested:
            if not any(e in self._vars for x in inner.extents for e in walk_expr(x)):
                vars_, sizes = (*self._vars, *inner.vars), (*extents, *inner.extents)
                return ParallelStmt(vars_, sizes, inner.body, loc=loc)
        return ParallelStmt(self._vars, extents, body, loc=loc)


_LOOPS = "range, T.serial, T.unroll, T.Parallel, T.Pipelined, T.grid, T.Persistent"
# What to write for Python's other iterables, by the name of their type.
_INSTEAD = {
    "enumerate": "count with `for i in range(n)` and index by i",
    "zip": "write one `for i in range(n)` and index both by i",
    "range_iterator": "write the steps into range itself, as in range(n - 1, -1, -1)",
    "list_reverseiterator": "write range(n - 1, -1, -1) and index by its variable",
    "map": "write `for i in range(n)` and compute from i in the body",
    "filter": "write `for i in range(n)` with an `if` in the body",
    "generator": "write `for i in range(n)` and compute from i in the body",
}


def not_a_loop(value: object) -> ProgramTypeError:
    """The error for a `for` over ``value``, which is not a loop of the language."""
    kind = type(value).__name__
    is_other = type(value).__module__ in ("builtins", "itertools")
    instead = _INSTEAD.get(kind, "")
    article = "an" if kind[0] in "aeiou" else "a"
    return ProgramTypeError(
        "a `for` in a tile program must iterate over range(...) or a loop of the language; "
        + (f"{instead}, or " if instead else "")
        + "unroll other iterables in a plain Python function",
        expected=_LOOPS,
        found=f"{article} {kind}" if is_other and hasattr(value, "__iter__") else describe(value),
    )


def _evaluated_once(axis: Axis) -> Axis:
    """Bounds that read memory are read before the loop, as Python's ``range`` does."""
    start = bind("start", axis.start).expr if has_load(axis.start) else axis.start
    stop = bind("stop", axis.stop).expr if has_load(axis.stop) else axis.stop
    return Axis(start, stop, axis.step)


def _imperfect() -> ProgramValueError:
    return ProgramValueError(
        "T.Parallel loops must be perfectly nested: the inner one is the only statement of the "
        "outer one"
    )


def _axis(construct: str, start: object, stop: object = None, step: object = None) -> Axis:
    tracer = require_tracer(construct)
    if stop is None:
        start, stop = 0, start
    width = 1 if step is None else as_int(step)
    if width is None:
        raise ProgramValueError(f"the step of {construct} must be a constant", found=describe(step))
    if width == 0:
        raise ProgramValueError(f"the step of {construct} cannot be 0")
    first = to_expr(start, f"the start of {construct}")
    last = to_expr(stop, f"the stop of {construct}")
    if construct != "T.Parallel":
        first, last = without_wraps(tracer, first, last, width)
    if first.dtype != UINT64 or last.dtype != UINT64:
        first = index_expr(Value(first), f"the start of {construct}")
        last = index_expr(Value(last), f"the stop of {construct}")
    if first.dtype != last.dtype:
        first, last = fold.cast(first, INT64), fold.cast(last, INT64)
    return Axis(first, last, width)


def _axes(construct: str, extents: tuple[object, ...]) -> tuple[Axis, ...]:
    if not extents:
        raise ProgramValueError(f"{construct} needs at least one extent")
    return tuple(_axis(construct, extent) for extent in extents)


def serial(
    start: object, stop: object = None, step: object = None, *, annotations: object = None
) -> LoopFrame:
    """A loop in order, as ``range``; bounds may be run-time values, the step is a constant."""
    return LoopFrame("T.serial", "serial", (_axis("T.serial", start, stop, step),))


def range_(start: object, stop: object = None, step: object = None) -> LoopFrame | range:
    """Python's ``range`` in a program: itself for plain numbers, else a loop in order.

    A ``for`` makes a loop of the kernel of either; Python's own can go through ``list`` and ``zip``
    as well.
    """
    given = [x for x in (start, stop, step) if x is not None]
    if all(isinstance(x, int) for x in given) and step != 0:
        return range(*given)  # type: ignore[call-overload,no-any-return]
    return LoopFrame("range", "serial", (_axis("range", start, stop, step),))


def unroll(
    start: object,
    stop: object = None,
    step: object = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: object = None,
) -> LoopFrame:
    """A loop in order, with the hint to unroll it."""
    if explicit and unroll_factor is not None:
        raise ProgramValueError("T.unroll takes explicit or unroll_factor, not both")
    hints = () if unroll_factor is None else (("factor", str(unroll_factor)),)
    return LoopFrame("T.unroll", "unroll", (_axis("T.unroll", start, stop, step),), hints=hints)


def vectorized(start: object, stop: object = None, *, annotations: object = None) -> LoopFrame:
    """A loop in order, with the hint to vectorise it."""
    return LoopFrame("T.vectorized", "vectorized", (_axis("T.vectorized", start, stop),))


def grid(*extents: object) -> LoopFrame:
    """Nested serial loops from 0, one an extent."""
    return LoopFrame("T.grid", "serial", _axes("T.grid", extents))


def Parallel(
    *extents: object,
    coalesced_width: object = None,
    loop_layout: object = None,
    prefer_async: object = None,
    annotations: object = None,
) -> LoopFrame:
    """An elementwise region: the body runs once for each point of the box, in no order.

    No iteration may read what another writes. The keyword arguments are hints.
    """
    axes = _axes("T.Parallel", extents)
    for axis in axes:
        if isinstance(axis.stop, Const) and axis.stop.value < 0:
            raise ProgramValueError("an extent of T.Parallel is negative")
    return LoopFrame("T.Parallel", "parallel", axes)


def Pipelined(
    start: object,
    stop: object = None,
    num_stages: object = 0,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    sync: object = None,
    group: object = None,
    annotations: object = None,
) -> LoopFrame:
    """A loop in order whose copies may run ahead by ``num_stages``; 0 is a plain loop.

    ``order`` and ``stage`` give a schedule by hand; only the depth max(stage) + 1 is used.
    """
    depth = int_of("T.Pipelined", "num_stages", num_stages)
    if depth < 0:
        raise ProgramValueError("num_stages cannot be negative", found=str(depth))
    if stage:
        depth = max(depth, max(stage) + 1)
    return LoopFrame("T.Pipelined", "pipelined", (_axis("T.Pipelined", start, stop),), stages=depth)


# -- rounds ----------------------------------------------------------------------------------------
# Stepped ranges count by 1 and have as many rounds as Python's `range`; bounds that may be anything
# are counted so that nothing wraps.
def without_wraps(tracer: Tracer, start: Expr, stop: Expr, step: int) -> tuple[Expr, Expr]:
    """The bounds of a loop; one of uint64 is never taken for a negative number.

    Both stay uint64 if the variable may pass the end of int64. Beside a bound that may be
    negative the variable is an int64, and the loop ends at its largest number.
    """
    wide = [e.dtype == UINT64 and not fits_its_type(tracer, e) for e in (start, stop)]
    if not any(wide):
        return start, stop
    # Steps of 1 from a small number do not come to the end of int64.
    is_near = step == 1 and isinstance(start, Const) and start.value <= INT32.limits[1]
    if not is_near and all(
        is_wide or (isinstance(e, Const) and e.value >= 0)
        for e, is_wide in zip((start, stop), wide, strict=True)
    ):
        return fold.cast(start, UINT64), fold.cast(stop, UINT64)
    most = fold.const(INT64.limits[1], UINT64)
    first, last = (
        fold.cast(fold.binary("min", e, most), INT64) if is_wide else e
        for e, is_wide in zip((start, stop), wide, strict=True)
    )
    return first, last


def rounds(tracer: Tracer, axis: Axis) -> Rounds:
    """The loop that makes the rounds of ``range(start, stop, step)``."""
    dtype = axis.start.dtype
    if dtype == UINT64:
        return _unsigned(axis)
    if axis.step == 1:
        return Rounds(dtype, axis.start, axis.stop, lambda var: var)
    distance = constant_difference(axis.stop, axis.start)
    if distance is not None:
        return _constant(axis, dtype, distance)
    if fits_its_type(tracer, axis.start, axis.stop):
        return _plain(axis, dtype)
    fits = abs(axis.step) <= dtype.limits[1]
    if axis.step == -1:
        # All lanes of a nest run the widest range of any: there only counts from 0 overlap.
        fits = dtype == INT64 or not tracer.in_parallel
        if fits:
            # `-1 - i` counts up, and no bound wraps in it.
            minus_one = fold.const(-1, dtype)
            start, stop = (fold.sub(minus_one, e) for e in (axis.start, axis.stop))
            return Rounds(dtype, start, stop, lambda var: fold.sub(minus_one, var))
    return _exact(axis, dtype, dtype if fits else INT64)


def _unsigned(axis: Axis) -> Rounds:
    """A count of the steps between bounds of uint64."""
    low, high = (axis.start, axis.stop) if axis.step > 0 else (axis.stop, axis.start)
    gap = fold.sub(fold.sub(high, low), fold.const(1, UINT64))
    width = fold.const(min(abs(axis.step), UINT64.limits[1]), UINT64)
    # No loop makes more than 2^63 - 1 rounds.
    most = fold.const(INT64.limits[1] - 1, UINT64)
    last = fold.binary("min", fold.binary("floordiv", gap, width), most)
    none = fold.const(0, INT64)
    stop = fold.add(fold.cast(last, INT64), fold.const(1, INT64))
    stop = fold.select(fold.binary("lt", low, high), stop, none)
    step = fold.const(axis.step % (1 << 64), UINT64)

    def value(var: Expr) -> Expr:
        return fold.add(axis.start, fold.mul(fold.cast(var, UINT64), step))

    return Rounds(INT64, none, stop, value)


def _stepping(axis: Axis, dtype: DType, first: int = 0) -> Callable[[Expr], Expr]:
    """``start + (var - first) * step``; of ``dtype`` if a step fits it."""

    def value(var: Expr) -> Expr:
        steps = fold.sub(var, fold.const(first))
        found = fold.add(axis.start, fold.mul(steps, fold.const(axis.step)))
        step_fits = dtype.limits[0] <= axis.step <= dtype.limits[1]
        return fold.cast(found, dtype) if step_fits else found

    return value


def _constant(axis: Axis, dtype: DType, distance: int) -> Rounds:
    # No loop makes more than 2^63 rounds.
    most = INT64.limits[1]
    count = min(-(-distance // axis.step), most) if (distance > 0) == (axis.step > 0) else 0
    wide = INT64 if count > INT32.limits[1] else dtype
    return Rounds(wide, fold.const(0, wide), fold.const(count, wide), _stepping(axis, dtype))


def _plain(axis: Axis, dtype: DType) -> Rounds:
    """A plain count of steps: neither a difference nor a sum of the bounds wraps."""
    low, high = (axis.start, axis.stop) if axis.step > 0 else (axis.stop, axis.start)
    # No distance here is longer than the type's largest number: neither needs a step to be.
    width = fold.const(min(abs(axis.step), dtype.limits[1]))
    count = fold.ceildiv(fold.sub(high, low), width)
    return Rounds(dtype, ZERO, fold.binary("max", count, ZERO), _stepping(axis, dtype))


def _exact(axis: Axis, dtype: DType, counted: DType) -> Rounds:
    """A count in the type ``counted``, for any bounds: from their distance as an unsigned integer.

    Steps of 2 from one end of the type to the other are one more than the type holds: the loop
    then starts at -1.
    """
    bounds = fold.cast(axis.start, counted), fold.cast(axis.stop, counted)
    low, high = bounds if axis.step > 0 else bounds[::-1]
    unsigned = _UNSIGNED[counted]
    one = fold.const(1, unsigned)
    gap = fold.sub(fold.sub(fold.cast(high, unsigned), fold.cast(low, unsigned)), one)
    last = fold.cast(fold.binary("floordiv", gap, fold.const(abs(axis.step), unsigned)), counted)
    first = -1 if abs(axis.step) == 2 else 0
    start = fold.const(first, counted)
    stop = last if first else fold.add(last, fold.const(1, counted))
    stop = fold.select(fold.binary("lt", low, high), stop, start)
    return Rounds(counted, start, stop, _stepping(Axis(*bounds, axis.step), dtype, first))
