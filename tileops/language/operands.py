"""What constructs take: tiles as regions, and Python's own numbers, texts, lists and dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir.expr import Expr, Region, comma_separated
from tileops.language.buffers import ONE, ZERO, BufferRef, Element, RegionRef
from tileops.language.index_arithmetic import are_different, is_one
from tileops.language.value import as_int, describe

Operand = BufferRef | RegionRef | Element


def whole(ref: BufferRef) -> Region:
    """All of a buffer."""
    return Region(ref.node, (ZERO,) * ref.ndim, ref.node.shape)


def operand(construct: str, what: str, value: object) -> Operand:
    """``value`` checked to be a buffer, a slice of one or an element."""
    if isinstance(value, (BufferRef, RegionRef, Element)):
        return value
    raise ProgramTypeError(
        f"{construct}: {what} must be a buffer, a slice of a buffer or an element",
        found=describe(value),
    )


def tile(construct: str, what: str, value: object) -> Region:
    """The region of a buffer or slice; an element is a region of one."""
    found = operand(construct, what, value)
    if isinstance(found, BufferRef):
        return whole(found)
    if isinstance(found, RegionRef):
        return found.region
    return element_region(found)


def matrix(construct: str, what: str, value: object) -> Region:
    """The region of a buffer or slice; ProgramTypeError for an element."""
    found = operand(construct, what, value)
    if isinstance(found, Element):
        raise ProgramTypeError(
            f"{construct}: {what} must be a buffer or a slice of one", found=found.describe()
        )
    return tile(construct, what, found)


def element_region(element: Element) -> Region:
    """The region that holds one element."""
    return Region(element.ref.node, element.indices, (ONE,) * element.ref.ndim)


def from_start(construct: str, element: Element, extents: tuple[Expr, ...]) -> Region:
    """The region that starts at ``element`` and takes ``extents``, aligned at the right."""
    ndim = element.ref.ndim
    lead = extents[: max(0, len(extents) - ndim)]
    if any(not is_one(e) for e in lead):
        raise ProgramValueError(
            f"{construct}: the other side has more dimensions than `{element.ref.name}`",
            expected=f"at most {ndim} dimensions that are not 1",
            found=f"extents {format_extents(extents)}",
        )
    tail = extents[len(lead) :]
    full = (ONE,) * (ndim - len(tail)) + tail
    return Region(element.ref.node, element.indices, full)


def with_squeezed_extents(region: Region, extents: tuple[Expr, ...]) -> Region:
    """``region`` with the extents that are not 1 replaced, in order."""
    replaced = iter(extents)
    return Region(
        region.buffer,
        region.starts,
        tuple(e if is_one(e) else next(replaced) for e in region.extents),
    )


def format_extents(extents: tuple[Expr, ...]) -> str:
    """``[64, N.0]``."""
    return f"[{comma_separated(extents)}]"


def show(region: Region) -> str:
    """A region in an error message: buffer, extents, scope."""
    b = region.buffer
    return f"{b.name} {format_extents(region.extents)} ({b.dtype}, {b.scope})"


def same_extents(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """False if the two shapes differ in rank or, for all sizes, in an extent."""
    return len(a) == len(b) and not any(are_different(x, y) for x, y in zip(a, b, strict=True))


# -- Python's own ----------------------------------------------------------------------------------
def text_of(construct: str, what: str, value: object) -> str:
    """``value``, which must be a string."""
    if not isinstance(value, str):
        raise _wrong(construct, what, "a string", value)
    return str(value)


def one_of(construct: str, what: str, value: object, known: Iterable[str]) -> str:
    """``value``, which must be one of ``known``."""
    known = tuple(known)
    if isinstance(value, str) and value in known:
        return str(value)
    raise ProgramValueError(
        f"{construct}: unknown {what}", expected=", ".join(map(repr, known)), found=describe(value)
    )


def items_of(construct: str, what: str, value: object) -> tuple[object, ...]:
    """The items of ``value``, which must be a list or a tuple."""
    if not isinstance(value, (list, tuple)):
        raise _wrong(construct, what, "a list or a tuple", value)
    return tuple(value)


def mapping_of(construct: str, what: str, value: object) -> Mapping[Any, object]:
    """``value``, which must be a dict."""
    if not isinstance(value, Mapping):
        raise _wrong(construct, what, "a dict", value)
    return value


def int_of(construct: str, what: str, value: object) -> int:
    """``value``, which must be an int that is known at compile time."""
    found = as_int(value)
    if found is None:
        raise _wrong(construct, what, "an int", value)
    return found


def _wrong(construct: str, what: str, expected: str, value: object) -> ProgramTypeError:
    return ProgramTypeError(
        f"{construct}: {what} is not {expected}", expected=expected, found=describe(value)
    )
