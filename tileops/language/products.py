"""Products of tiles and of bytes: T.gemm, its warp policy, and T.dp4a."""

from __future__ import annotations

from enum import IntEnum

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Load, Region
from tileops.ir.stmt import Gemm
from tileops.language.buffers import ZERO, BufferRef, Element, store
from tileops.language.index_arithmetic import are_different, is_one
from tileops.language.operands import matrix, show
from tileops.language.tracer import require_tracer
from tileops.language.value import INT32, Value, describe, to_expr

__all__ = ["GemmWarpPolicy", "dp4a", "gemm"]


class GemmWarpPolicy(IntEnum):
    """How warps share a gemm's tile; a hint."""

    Square = 0
    FullRow = 1
    FullCol = 2


_POLICIES = {0: "square", 1: "full_row", 2: "full_col"}


def gemm(
    A: object,
    B: object,
    C: object,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: int = GemmWarpPolicy.Square,
    clear_accum: object = False,
    k_pack: int = 1,
    mbar: object = None,
    annotations: object = None,
) -> None:
    """``C (+)= op(A) @ op(B)`` on the last two dimensions; leading extents are 1.

    ``clear_accum``, a Python bool or a run-time condition, starts from zero. ``policy`` and
    ``k_pack`` are hints.
    """
    tracer = require_tracer("T.gemm")
    if mbar is not None:
        raise UnsupportedConstructError("T.gemm(mbar=...)")
    made = gemm_of("T.gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum)
    tracer.emit_tile("T.gemm", made)


def gemm_of(
    construct: str,
    A: object,
    B: object,
    C: object,
    transpose_A: bool,
    transpose_B: bool,
    policy: int,
    clear_accum: object,
) -> Gemm:
    """The product that ``construct`` was asked for, after checks of its operands."""
    a, b, c = (matrix(construct, name, given) for name, given in (("A", A), ("B", B), ("C", C)))
    for name, region in (("A", a), ("B", b), ("C", c)):
        _check_matrix(construct, name, region)
    m, k = a.extents[-2:][:: -1 if transpose_A else 1]
    kb, n = b.extents[-2:][:: -1 if transpose_B else 1]
    cm, cn = c.extents[-2:]
    for axis, left, right, extents, sides in (
        ("K", "A", "B", (k, kb), (a, b)),
        ("M", "A", "C", (m, cm), (a, c)),
        ("N", "B", "C", (n, cn), (b, c)),
    ):
        if are_different(*extents):
            raise ProgramValueError(
                f"{construct}: {left} and {right} disagree about {axis}",
                expected=f"{left} {show(sides[0])}",
                found=f"{right} {show(sides[1])}",
            )
    _check_dtypes(construct, a.dtype, b.dtype, c.dtype)
    if int(policy) not in _POLICIES:
        raise ProgramValueError(f"{construct}: unknown policy", found=repr(policy))
    clear = fold.truth(to_expr(clear_accum, "clear_accum"))
    flags = bool(transpose_A), bool(transpose_B)
    return Gemm(a, b, c, *flags, clear, _POLICIES[int(policy)])


def _check_matrix(construct: str, name: str, region: Region) -> None:
    if len(region.extents) < 2:
        raise ProgramValueError(
            f"{construct}: {name} needs at least two dimensions", found=show(region)
        )
    if any(not is_one(e) for e in region.extents[:-2]):
        raise ProgramValueError(
            f"{construct}: the leading extents of {name} must be 1", found=show(region)
        )
    if region.buffer.scope == "global":
        raise ProgramValueError(
            f"{construct}: {name} must be on chip; T.copy it to a shared or fragment tile first",
            found=show(region),
        )


def _check_dtypes(construct: str, a: DType, b: DType, c: DType) -> None:
    narrow = a.is_float and b.is_float and a.bits <= 8 and b.bits <= 8
    narrow_int = a.is_integer and b.is_integer and a.bits == b.bits
    if a != b and not narrow and not narrow_int:
        raise ProgramTypeError(
            f"{construct}: A and B must have one dtype (8-bit and narrower floats may mix)",
            expected=f"B of {a}",
            found=f"B of {b}",
        )
    if a.is_bool or c.is_bool or a.is_integer != c.is_integer:
        raise ProgramTypeError(
            f"{construct}: the accumulator must be a float for float operands and an integer for "
            "integer operands",
            expected="an integer dtype" if a.is_integer else "a float dtype",
            found=f"A of {a}, C of {c}",
        )


# -- bytes -----------------------------------------------------------------------------------------
_BYTES = ("int8", "uint8")


def dp4a(A: object, B: object, C: object) -> None:
    """``C += sum(A[n] * B[n] for n in range(4))``, each a start element or a buffer's beginning.

    A and B are four bytes along their last dimension (int8 or uint8), C is one int32.
    """
    a, b, c = (_element(name, x) for name, x in (("A", A), ("B", B), ("C", C)))
    for name, operand, dtypes in (("A", a, _BYTES), ("B", b, _BYTES), ("C", c, ("int32",))):
        if operand.ref.node.dtype not in dtypes:
            raise ProgramTypeError(
                f"T.dp4a: wrong dtype of {name}",
                expected=" or ".join(dtypes),
                found=operand.ref.describe(),
            )
    total: Expr = Load(INT32, c.ref.node, c.indices)
    for n in range(4):
        total = fold.add(total, fold.mul(_lane("A", a, n), _lane("B", b, n)))
    store(c.ref, c.indices, Value(total))


def _element(name: str, value: object) -> Element:
    if isinstance(value, Element):
        return value
    if isinstance(value, BufferRef):
        return Element(value, (ZERO,) * value.ndim)
    raise ProgramTypeError(
        f"T.dp4a: {name} is a buffer or an element where it starts", found=describe(value)
    )


def _lane(name: str, start: Element, n: int) -> Expr:
    node, indices = start.ref.node, start.indices
    last, extent = fold.add(indices[-1], fold.const(n)), node.shape[-1]
    constant = isinstance(last, Const) and isinstance(extent, Const)
    if node.is_on_chip and constant and int(last.value) >= int(extent.value):  # type: ignore[attr-defined]
        raise ProgramValueError(
            f"T.dp4a: {name} has fewer than four elements from its start",
            expected="four elements along the last dimension",
            found=start.ref.describe(),
        )
    return fold.cast(Load(node.dtype, node, (*indices[:-1], last)), INT32)
