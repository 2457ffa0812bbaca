"""Shapes that users write: their extents, leading dimensions, and the rows of 4-bit dtypes."""

from __future__ import annotations

import math

from tileops.dtypes import DType
from tileops.errors import ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr
from tileops.ir.printer import print_expr
from tileops.language.tracer import Tracer
from tileops.language.value import INT32, index_expr

ONE = fold.const(1)


def static_shape(what: str, shape: object) -> tuple[Expr, ...]:
    """A shape given by the user (int, value, tuple or list) as positive int32 expressions."""
    dims = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not dims:
        raise ProgramValueError(f"{what} needs at least one dimension")
    if any(d is Ellipsis for d in dims):
        raise ProgramValueError(
            f"`...` in the shape of {what}",
            expected="`...` once, first in the shape of a tensor parameter or of T.empty; "
            "elsewhere `A.shape[0]`, the product of the leading dimensions of `A`",
        )
    out = tuple(index_expr(d, f"an extent of {what}") for d in dims)
    for extent in out:
        if isinstance(extent, Const) and extent.value < 0:
            raise ProgramValueError(f"an extent of {what} is negative", found=print_expr(extent))
    return tuple(
        fold.cast(e, INT32) if isinstance(e, Const) and abs(e.value) < 2**31 else e for e in out
    )


def leading_shape(tracer: Tracer, what: str, shape: object) -> tuple[bool, tuple[Expr, ...]]:
    """Whether a shape begins with ``...``, and the shape with their product in that place."""
    dims = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    is_leading = bool(dims) and dims[0] is Ellipsis
    rest = dims[1:] if is_leading else dims
    first = (tracer.leading_size(),) if is_leading else ()
    return is_leading, (*first, *(static_shape(what, rest) if rest or not first else ()))


# Places in a tile are numbers of 32 bits; those of a tensor, and its bytes, of 64.
ON_CHIP_BYTES = 2**31 - 1
GLOBAL_BYTES = 2**63 - 1


def check_bytes(what: str, shape: tuple[Expr, ...], dtype: DType, most: int) -> None:
    """ProgramValueError for a buffer of constant extents that has more than ``most`` bytes."""
    extents = [int(e.value) for e in shape if isinstance(e, Const)]
    if len(extents) < len(shape):
        return
    count = math.prod(extents)
    size = -(-count * dtype.bits // 8)
    if size > most:
        raise ProgramValueError(
            f"{what} is too large",
            expected=f"at most {most} bytes",
            found=f"{dtype}[{', '.join(map(str, extents))}], {count} elements in {size} bytes",
        )


def check_packed(
    construct: str,
    shape: tuple[Expr, ...],
    dtype: DType,
    strides: tuple[Expr, ...] | None = None,
) -> None:
    """ProgramValueError for a tensor of a 4-bit dtype whose rows are not whole bytes."""
    if dtype.bits >= 8:
        return
    what = f"{construct} of {dtype} holds two elements a byte along its last dimension"
    last = shape[-1] if shape else None
    if last is None or _is_odd(last):
        found = f"a shape of {len(shape)} dimensions"
        raise ProgramValueError(
            what,
            expected="a last dimension that is even",
            found=found + (f", the last {print_expr(last)}" if last is not None else ""),
        )
    steps = strides or (ONE,)
    if steps[-1] != ONE or any(map(_is_odd, steps[:-1])):
        raise ProgramValueError(
            what,
            expected="strides in elements, the last 1 and the others even",
            found=f"strides ({', '.join(map(print_expr, steps))})",
        )


def _is_odd(expr: Expr) -> bool:
    return isinstance(expr, Const) and int(expr.value) % 2 == 1
