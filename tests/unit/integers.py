"""Random integer expressions of two variables, with conversions, and what they are worth."""

from __future__ import annotations

import operator

from hypothesis import strategies as st

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tileops.passes.analyze_ranges import is_index_type, widens

I32 = DType("int32")
X, Y = Var(I32, 0, "x"), Var(I32, 1, "y")
_TYPES = tuple(
    map(DType, ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"))
)
_CONSTANTS = st.one_of(st.integers(-9, 9), st.sampled_from([1 << 16, -(1 << 16), 1103515245]))
_PYTHON = {
    "and": operator.and_, "shr": operator.rshift, "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floormod": operator.mod, "min": min, "max": max,
}  # fmt: skip


def evaluate(expr: Expr, env: dict[int, int]) -> int:
    """The value of ``expr``; all arithmetic wraps."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return env[expr.id]
    if isinstance(expr, Cast):
        return fold.wrap(evaluate(expr.a, env), expr.dtype)
    if isinstance(expr, Unary):
        exact = -evaluate(expr.a, env)
    else:
        exact = _PYTHON[expr.op](evaluate(expr.a, env), evaluate(expr.b, env))
    return fold.wrap(exact, expr.dtype)


def place(index: Expr, env: dict[int, int]) -> int:
    """The place that ``index`` names: its sums, products and widening conversions are exact."""
    if is_index_type(index.dtype):
        if isinstance(index, Binary) and index.op in ("add", "sub", "mul"):
            return _PYTHON[index.op](place(index.a, env), place(index.b, env))
        if isinstance(index, Unary):
            return -place(index.a, env)
        if isinstance(index, Cast) and widens(index.dtype, index.a.dtype):
            return place(index.a, env)
    return evaluate(index, env)


def expressions() -> st.SearchStrategy[Expr]:
    """Sums, products, extremes, quotients, bits, negatives and conversions; some wrap."""
    leaves = st.one_of(st.sampled_from([X, Y]), _CONSTANTS.map(fold.const))

    def grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        plain = st.builds(
            fold.binary, st.sampled_from(["add", "sub", "mul", "min", "max"]), children, children
        )
        divided = st.builds(
            fold.binary,
            st.sampled_from(["floordiv", "floormod"]),
            children,
            st.integers(1, 9).map(fold.const),
        )
        bits = st.builds(
            fold.binary,
            st.sampled_from(["and", "shr"]),
            children,
            st.integers(0, 7).map(fold.const),
        )
        converted = st.builds(fold.cast, children, st.sampled_from(_TYPES))
        return st.one_of(
            plain, divided, bits, converted, st.builds(fold.unary, st.just("neg"), children)
        )

    return st.recursive(leaves, grow, max_leaves=8)
