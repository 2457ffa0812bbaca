"""Stepped ranges as loops that count by 1, with as many rounds as Python's ``range`` has.

Bounds that may be anything are counted so that nothing wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Const, Expr
from tileops.language.buffers import ZERO
from tileops.language.index_arithmetic import constant_difference, fits_its_type
from tileops.language.tracer import Tracer
from tileops.language.value import INT32, INT64

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
