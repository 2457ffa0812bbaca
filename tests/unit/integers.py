"""Random integer expressions of two variables, with conversions, and what they are worth."""

from __future__ import annotations

import operator

from hypothesis import strategies as st

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Cast, Const, Expr, Unary, Var
from tileops.passes.analyze_ranges import is_index_type

I32 = DType("int32")
X, Y = Var(I32, 0, "x"), Var(I32, 1, "y")
_TYPES = tuple(
    map(DType, ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"))
)
_PYTHON = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floormod": operator.mod, "min": min, "max": max,
}  # fmt: skip


def evaluate(expr: Expr, env: dict[int, int]) -> int:
    """The value of ``expr``; index types are taken as wide enough, the others wrap."""
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
    return exact if is_index_type(expr.dtype) else fold.wrap(exact, expr.dtype)


def expressions() -> st.SearchStrategy[Expr]:
    """Sums, products, extremes, quotients, negatives and conversions."""
    leaves = st.one_of(st.sampled_from([X, Y]), st.integers(-9, 9).map(fold.const))

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
        converted = st.builds(fold.cast, children, st.sampled_from(_TYPES))
        return st.one_of(plain, divided, converted, st.builds(fold.unary, st.just("neg"), children))

    return st.recursive(leaves, grow, max_leaves=8)
