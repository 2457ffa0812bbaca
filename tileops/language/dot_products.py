"""Owns T.dp4a: the product of four pairs of bytes added to an integer."""

from __future__ import annotations

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Load
from tileops.language.buffers import BufferRef, Element, VarRef, store
from tileops.language.value import Value, describe

_INT32 = DType("int32")
_BYTES = ("int8", "uint8")
_LANES = 4


def dp4a(A: object, B: object, C: object) -> None:
    """``C += sum(A[n] * B[n] for n in range(4))``, each a start element or a buffer's beginning.

    A and B are four bytes along their last dimension (int8 or uint8), C is one int32.
    """
    a, b, c = (_element(name, x) for name, x in (("A", A), ("B", B), ("C", C)))
    for name, operand in (("A", a), ("B", b)):
        if operand.ref.node.dtype not in _BYTES:
            raise _wrong(name, "int8 or uint8", operand)
    if c.ref.node.dtype != _INT32:
        raise _wrong("C", "int32", c)
    total: Expr = Load(_INT32, c.ref.node, c.indices)
    for n in range(_LANES):
        product = fold.mul(_lane("A", a, n), _lane("B", b, n))
        total = fold.add(total, product)
    store(c.ref, c.indices, Value(total))


def _element(name: str, value: object) -> Element:
    if isinstance(value, VarRef):
        return value
    if isinstance(value, Element):
        return value
    if isinstance(value, BufferRef):
        return Element(value, tuple(fold.const(0) for _ in value.node.shape))
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
    return fold.cast(Load(node.dtype, node, (*indices[:-1], last)), _INT32)


def _wrong(name: str, expected: str, found: Element) -> ProgramTypeError:
    return ProgramTypeError(
        f"T.dp4a: wrong dtype of {name}", expected=expected, found=found.ref.describe()
    )
