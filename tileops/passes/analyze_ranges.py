"""Interval analysis: the integers that an expression, or an index, may be.

A value wraps in its dtype. An index is taken exactly: its sums, products and widening conversions
are those of unlimited integers, down to the first other operation, whose result is a value. Sizes
have no upper bound here, and arithmetic that would wrap only through them is taken as not wrapping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tileops.dtypes import DType
from tileops.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from tileops.ir.program import Program
from tileops.ir.stmt import Bind, For, Launch, Parallel, Stmt


@dataclass(frozen=True)
class Interval:
    """The integers from ``lo`` to ``hi``, both included; an infinite end is unbounded."""

    lo: float
    hi: float

    @property
    def is_bounded(self) -> bool:
        return self.lo > -math.inf and self.hi < math.inf

    def join(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.lo, other.lo), max(self.hi, other.hi))

    def is_beside(self, lo: int, hi: int) -> bool:
        """True if no integer of this interval is one of ``lo`` to ``hi``."""
        return self.lo > hi or self.hi < lo


_ZERO = Const(DType("int32"), 0)
ANY = Interval(-math.inf, math.inf)
BOOL = Interval(0, 1)
COUNT = Interval(0, math.inf)


@dataclass(frozen=True)
class Ranges:
    """Known intervals of variables, and the expression that each is below.

    ``limits`` maps a variable to its exclusive upper bound where that is an expression, so that an
    index ``i`` of a loop to ``N`` is known to be below ``N`` even when N is a run-time size.
    """

    intervals: Mapping[int, Interval] = field(default_factory=dict)
    limits: Mapping[int, Expr] = field(default_factory=dict)

    def with_span(self, var: Var, start: Expr, stop: Expr) -> Ranges:
        """These ranges with ``start <= var < stop``."""
        interval = Interval(self.of(start).lo, self.of(stop).hi - 1)
        return replace(
            self,
            intervals={**self.intervals, var.id: interval},
            limits={**self.limits, var.id: stop},
        )

    def with_value(self, var: Var, value: Expr) -> Ranges:
        """These ranges with ``var`` equal to ``value``."""
        return replace(self, intervals={**self.intervals, var.id: self.of(value)})

    def inside(self, stmt: Stmt) -> Ranges:
        """These ranges in the statements nested in ``stmt``, with what it defines."""
        match stmt:
            case For():
                return self.with_span(stmt.var, stmt.start, stmt.stop)
            case Parallel(vars=vars_, extents=extents) | Launch(block_vars=vars_, grid=extents):
                out = self
                for var, extent in zip(vars_, extents, strict=True):
                    out = out.with_span(var, _ZERO, extent)
                return out
            case _:
                return self

    def after(self, stmt: Stmt) -> Ranges:
        """These ranges after ``stmt``, which may bind a variable."""
        if isinstance(stmt, Bind) and stmt.var.dtype.is_integer:
            return self.with_value(stmt.var, stmt.value)
        return self

    def of(self, expr: Expr) -> Interval:
        """The interval of an integer or bool expression as a value, which wraps in its dtype."""
        match expr:
            case Const(value=value):
                return Interval(int(value), int(value)) if isinstance(value, int) else ANY
            case Var(id=n):
                return self.intervals.get(n, _any_of(expr.dtype))
            case Binary(op="add" | "sub" | "mul" as op, a=a, b=b) if expr.dtype.is_integer:
                left, right = self.of(a), self.of(b)
                if op == "mul" and is_unlimited_product(left, right):
                    return Interval(*expr.dtype.limits)
                return _held(_combined(op, left, right), expr.dtype)
            case Binary():
                return self._of_binary(expr)
            case Unary(op="neg", a=a):
                return _held(_negative(self.of(a)), expr.dtype)
            case Cast(a=a, dtype=dtype) if dtype.is_integer and (
                a.dtype.is_integer or a.dtype.is_bool
            ):
                return _held(self.of(a), dtype)
            case Select(a=a, b=b):
                return self.of(a).join(self.of(b))
            case _:
                return _any_of(expr.dtype)

    def wraps(self, expr: Binary) -> bool:
        """True if a sum, difference or product may be outside its integer dtype."""
        return not fits(_combined(expr.op, self.of(expr.a), self.of(expr.b)), expr.dtype)

    def exact(self, index: Expr) -> Interval:
        """The interval of an index, whose sums and products do not wrap."""
        match index if is_exact(index) else None:
            case Binary(op=op, a=a, b=b):
                return _combined(op, self.exact(a), self.exact(b))
            case Unary(a=a):
                return _negative(self.exact(a))
            case Cast(a=a):
                return self.exact(a)
            case _:
                return self.of(index)

    def _of_binary(self, expr: Binary) -> Interval:
        if not expr.dtype.is_integer:
            return _any_of(expr.dtype)
        a, b = self.of(expr.a), self.of(expr.b)
        match expr.op:
            case "min":
                return Interval(min(a.lo, b.lo), min(a.hi, b.hi))
            case "max":
                return Interval(max(a.lo, b.lo), max(a.hi, b.hi))
            case "floordiv" | "ceildiv" | "truncdiv" | "shr":
                found = _quotient(expr.op, a, b)
            case "floormod" | "truncmod":
                found = _remainder(expr.op, a, b)
            case "and":
                found = _common_bits(a, b)
            case _:
                found = ANY
        return _any_of(expr.dtype) if found == ANY else found

    def is_below(self, index: Expr, extent: Expr) -> bool:
        """True if the index is below ``extent`` in every execution."""
        if isinstance(index, Var) and self.limits.get(index.id) == extent:
            return True
        return self.exact(index).hi < self.exact(extent).lo

    def is_non_negative(self, value: Expr) -> bool:
        """True if the value is known to be 0 or more."""
        return self.of(value).lo >= 0

    def is_inside(self, value: Expr, count: int) -> bool:
        """True if the value is known to be one of 0 to ``count - 1``."""
        found = self.of(value)
        return found.lo >= 0 and found.hi < count

    def starts_inside(self, index: Expr) -> bool:
        """True if the index is known to be 0 or more."""
        return self.exact(index).lo >= 0


def widens(dtype: DType, other: DType) -> bool:
    """True if the integer type ``dtype`` holds every value of ``other``, an integer type too."""
    if not (dtype.is_integer and other.is_integer):
        return False
    least, most = dtype.limits
    return least <= other.limits[0] and other.limits[1] <= most


def is_index_type(dtype: DType) -> bool:
    """True for the types of indices, whose sums and products are exact there; others wrap."""
    return dtype in ("int32", "int64")


def is_exact(index: Expr) -> bool:
    """True for the operations of an index that do not wrap; what is below them may be exact too.

    These are sums, differences, products, negatives and widening conversions.
    """
    if not is_index_type(index.dtype):
        return False
    match index:
        case Binary(op=op):
            return op in ("add", "sub", "mul")
        case Unary(op=op):
            return op == "neg"
        case Cast(a=a, dtype=dtype):
            return widens(dtype, a.dtype)
        case _:
            return False


# What a size is multiplied by in a program whose sizes and indices fit their type.
MOST_FACTOR = 1 << 24


def is_unlimited_product(a: Interval, b: Interval) -> bool:
    """True for a size times what is neither a size nor a factor: an element read, for example."""
    return any(
        not x.is_bounded and y.is_bounded and not (y.lo >= -MOST_FACTOR and y.hi <= MOST_FACTOR)
        for x, y in ((a, b), (b, a))
    )


def fits(interval: Interval, dtype: DType) -> bool:
    """True if the known ends of ``interval`` are values of the integer type ``dtype``."""
    least, most = dtype.limits
    return all(math.isinf(end) or least <= end <= most for end in (interval.lo, interval.hi))


def _held(exact: Interval, dtype: DType) -> Interval:
    """``exact`` reduced to the range of ``dtype``: unchanged where it is inside.

    An unknown end comes from a size: it is assumed to fit the type of an index.
    """
    if fits(exact, dtype) and (exact.is_bounded or is_index_type(dtype)):
        return exact
    return Interval(*dtype.limits)


def _any_of(dtype: DType) -> Interval:
    if dtype.is_integer:
        return Interval(*dtype.limits)
    return BOOL if dtype.is_bool else ANY


def _combined(op: str, a: Interval, b: Interval) -> Interval:
    """The sums, differences or products of unlimited integers."""
    if op == "mul":
        return _product(a, b)
    other = _negative(b) if op == "sub" else b
    return Interval(a.lo + other.lo, a.hi + other.hi)


def _negative(a: Interval) -> Interval:
    return Interval(-a.hi, -a.lo)


def _common_bits(a: Interval, b: Interval) -> Interval:
    """``a & b``: no more than an operand that is not negative."""
    tops = [x.hi for x in (a, b) if x.lo >= 0]
    return Interval(0, min(tops)) if tops else ANY


def _product(a: Interval, b: Interval) -> Interval:
    if a.lo == a.hi == 0 or b.lo == b.hi == 0:
        return Interval(0, 0)
    if a.is_bounded and b.is_bounded:
        corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return Interval(min(corners), max(corners))
    if a.lo >= 0 and b.lo >= 0:
        return Interval(a.lo * b.lo, a.hi * b.hi)
    return ANY


def _quotient(op: str, a: Interval, b: Interval) -> Interval:
    if b.lo != b.hi:
        return Interval(0, a.hi) if a.lo >= 0 and b.lo > 0 else ANY
    divisor = 1 << int(b.lo) if op == "shr" and 0 <= b.lo < 63 else int(b.lo)
    if divisor <= 0 or (op == "truncdiv" and a.lo < 0):
        return ANY
    if op == "ceildiv":
        return _negative(_quotient("floordiv", _negative(a), b))
    lo, hi = (end if math.isinf(end) else int(end) // divisor for end in (a.lo, a.hi))
    return Interval(lo, hi)


def _remainder(op: str, a: Interval, b: Interval) -> Interval:
    if not b.is_bounded or b.lo <= 0 or (op == "truncmod" and a.lo < 0):
        return ANY
    return a if a.lo >= 0 and a.hi < b.lo else Interval(0, b.hi - 1)


def launch_ranges(program: Program, launch: Launch) -> Ranges:
    """Ranges at the head of a launch's body: sizes are not negative, blocks are within the grid."""
    return Ranges({size.var.id: COUNT for size in program.sizes}).inside(launch)
