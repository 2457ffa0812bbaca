"""Owns interval analysis: between which integers an index expression lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from tileops.dtypes import DType
from tileops.frozen import frozen
from tileops.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from tileops.ir.stmt import For, Launch, Parallel


@frozen
class Interval:
    """The integers from ``lo`` to ``hi``, both included; None is unbounded."""

    lo: int | None
    hi: int | None

    def join(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        lo = None if self.lo is None or other.lo is None else min(self.lo, other.lo)
        hi = None if self.hi is None or other.hi is None else max(self.hi, other.hi)
        return Interval(lo, hi)


_ZERO = Const(DType("int32"), 0)
ANY = Interval(None, None)
BOOL = Interval(0, 1)


@frozen
class Ranges:
    """Known intervals of variables, and the expression that each is below.

    ``limits`` maps a variable to its exclusive upper bound where that is an expression, so that an
    index ``i`` of a loop to ``N`` is known to be below ``N`` even when N is a run-time size.
    """

    intervals: Mapping[int, Interval] = field(default_factory=dict)
    limits: Mapping[int, Expr] = field(default_factory=dict)

    def with_span(self, var: Var, start: Expr, stop: Expr) -> Ranges:
        """These ranges with ``start <= var < stop``."""
        lo, hi = self.of(start).lo, self.of(stop).hi
        interval = Interval(lo, None if hi is None else hi - 1)
        return replace(
            self,
            intervals={**self.intervals, var.id: interval},
            limits={**self.limits, var.id: stop},
        )

    def with_value(self, var: Var, value: Expr) -> Ranges:
        """These ranges with ``var`` equal to ``value``."""
        return replace(self, intervals={**self.intervals, var.id: self.of(value)})

    def inside_launch(self, launch: Launch) -> Ranges:
        """These ranges with the block variables of ``launch`` within its grid."""
        out = self
        for var, extent in zip(launch.block_vars, launch.grid, strict=True):
            out = out.with_span(var, _ZERO, extent)
        return out

    def inside_loop(self, loop: For) -> Ranges:
        """These ranges with the loop's variable in its span."""
        return self.with_span(loop.var, loop.start, loop.stop)

    def inside_parallel(self, nest: Parallel) -> Ranges:
        """These ranges with the nest's variables in their extents."""
        out = self
        for var, extent in zip(nest.vars, nest.extents, strict=True):
            out = out.with_span(var, _ZERO, extent)
        return out

    def of(self, expr: Expr) -> Interval:
        """The interval of an integer or bool expression."""
        match expr:
            case Const(value=value):
                return Interval(int(value), int(value)) if isinstance(value, int) else ANY
            case Var(id=n):
                return self.intervals.get(n, BOOL if expr.dtype.is_bool else ANY)
            case Binary():
                return self._of_binary(expr)
            case Unary(op="neg", a=a):
                r = self.of(a)
                return _wrapped(Interval(_negate(r.hi), _negate(r.lo)), expr.dtype)
            case Cast(a=a, dtype=dtype) if dtype.is_integer and a.dtype.is_integer:
                return self.of(a) if holds(dtype, a.dtype) else _held(self.of(a), dtype)
            case Select(a=a, b=b):
                return self.of(a).join(self.of(b))
            case _:
                return BOOL if expr.dtype.is_bool else ANY

    def _of_binary(self, expr: Binary) -> Interval:
        if expr.dtype.is_bool:
            return BOOL
        a, b = self.of(expr.a), self.of(expr.b)
        match expr.op:
            case "add":
                return _wrapped(Interval(_plus(a.lo, b.lo), _plus(a.hi, b.hi)), expr.dtype)
            case "sub":
                exact = Interval(_plus(a.lo, _negate(b.hi)), _plus(a.hi, _negate(b.lo)))
                return _wrapped(exact, expr.dtype)
            case "mul":
                return _wrapped(_product(a, b), expr.dtype)
            case "min":
                return Interval(_least(a.lo, b.lo, both=True), _least(a.hi, b.hi, both=False))
            case "max":
                lo = _negate(_least(_negate(a.lo), _negate(b.lo), both=False))
                return Interval(lo, _negate(_least(_negate(a.hi), _negate(b.hi), both=True)))
            case "floordiv" | "truncdiv" | "shr":
                return _quotient(expr.op, a, b)
            case "floormod" | "truncmod":
                return _remainder(expr.op, a, b)
            case "and" if a.lo is not None and a.lo >= 0 and b.hi is not None and (b.lo or 0) >= 0:
                return Interval(0, b.hi if a.hi is None else min(a.hi, b.hi))
            case _:
                return ANY

    def is_below(self, index: Expr, extent: Expr) -> bool:
        """True if ``index < extent`` in every execution."""
        if isinstance(index, Var) and self.limits.get(index.id) == extent:
            return True
        hi, least = self.of(index).hi, self.of(extent).lo
        return hi is not None and least is not None and hi < least

    def is_non_negative(self, index: Expr) -> bool:
        """True if the expression is known to be 0 or more."""
        lo = self.of(index).lo
        return lo is not None and lo >= 0


def holds(dtype: DType, other: DType) -> bool:
    """True if every value of the integer type ``other`` is one of ``dtype``."""
    least, most = dtype.limits
    return least <= other.limits[0] and other.limits[1] <= most


def is_index_type(dtype: DType) -> bool:
    """True for the types of index arithmetic, which is taken as not wrapping; others wrap."""
    return dtype in ("int32", "int64")


def _wrapped(exact: Interval, dtype: DType) -> Interval:
    """The results of arithmetic in ``dtype`` whose results without limits are ``exact``."""
    return exact if is_index_type(dtype) else _held(exact, dtype)


def _held(exact: Interval, dtype: DType) -> Interval:
    """``exact`` reduced to the range of ``dtype``: unchanged where it lies in it."""
    least, most = dtype.limits
    if exact.lo is not None and exact.hi is not None and least <= exact.lo and exact.hi <= most:
        return exact
    return Interval(least, most)


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _negate(a: int | None) -> int | None:
    return None if a is None else -a


def _least(a: int | None, b: int | None, *, both: bool) -> int | None:
    """min(a, b); where one is unknown, unknown if ``both`` must be known, else the other."""
    if a is None or b is None:
        return None if both else (b if a is None else a)
    return min(a, b)


def _product(a: Interval, b: Interval) -> Interval:
    if a.lo == a.hi == 0 or b.lo == b.hi == 0:
        return Interval(0, 0)
    if a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None:
        corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return Interval(min(corners), max(corners))
    if a.lo is not None and a.lo >= 0 and b.lo is not None and b.lo >= 0:
        return Interval(a.lo * b.lo, None if a.hi is None or b.hi is None else a.hi * b.hi)
    return ANY


def _quotient(op: str, a: Interval, b: Interval) -> Interval:
    if b.lo is None or b.lo != b.hi:
        return Interval(0, a.hi) if a.lo is not None and a.lo >= 0 and (b.lo or 0) > 0 else ANY
    divisor = 1 << b.lo if op == "shr" and 0 <= b.lo < 63 else b.lo
    if divisor <= 0 or (op == "truncdiv" and (a.lo is None or a.lo < 0)):
        return ANY
    return Interval(
        None if a.lo is None else a.lo // divisor, None if a.hi is None else a.hi // divisor
    )


def _remainder(op: str, a: Interval, b: Interval) -> Interval:
    if (
        b.hi is None
        or b.lo is None
        or b.lo <= 0
        or (op == "truncmod" and (a.lo is None or a.lo < 0))
    ):
        return ANY
    if a.lo is not None and a.hi is not None and a.lo >= 0 and a.hi < b.lo:
        return a
    return Interval(0, b.hi - 1)


def launch_ranges(launch: Launch, sizes: tuple[Var, ...] = ()) -> Ranges:
    """Ranges at the head of a launch's body: sizes are not negative, blocks lie within the grid."""
    known = {v.id: Interval(0, None) for v in sizes}
    return Ranges(known).inside_launch(launch)
