"""The atomic operations on buffers: one element, or each element of a tile."""

from __future__ import annotations

from collections.abc import Callable

from tileops.dtypes import dtype_of
from tileops.errors import ProgramTypeError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Expr, Region
from tileops.ir.stmt import Atomic
from tileops.language.buffers import BufferRef, Element, RegionRef
from tileops.language.copies import copy_regions
from tileops.language.layouts import note_run
from tileops.language.operands import element_region, one_of, operand, tile
from tileops.language.tracer import require_launch, require_tracer, tracer_in_launch
from tileops.language.value import Value, as_int, describe, named, to_expr

__all__ = [
    "atomic_add", "atomic_addx2", "atomic_addx4", "atomic_load", "atomic_max", "atomic_min",
    "atomic_or", "atomic_store",
]  # fmt: skip

_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
_LOAD_ORDERS = ("relaxed", "consume", "acquire", "seq_cst")
_STORE_ORDERS = ("relaxed", "release", "seq_cst")


def _order(construct: str, given: object, allowed: tuple[str, ...], default: str) -> str:
    given = default if given is None else given
    return one_of(construct, "memory order", given, allowed)


def _atomic(
    construct: str, op: str, dst: object, value: object, memory_order: object, return_prev: bool
) -> Value | None:
    tracer = tracer_in_launch(construct)
    order = _order(construct, memory_order, _ORDERS, "relaxed")
    target = operand(construct, "the destination", dst)
    if isinstance(target, Element) and not isinstance(value, (BufferRef, RegionRef)):
        expr = fold.cast(to_expr(value, "the value"), target.ref.node.dtype)
        return _atomic_element(op, element_region(target), expr, order, return_prev)
    if return_prev:
        raise UnsupportedConstructError(
            f"{construct}(return_prev=True) on a tile; it exists for one element"
        )
    source: Region | Expr
    if isinstance(value, (BufferRef, RegionRef, Element)):
        source, region = copy_regions(construct, value, target)
    else:
        region = tile(construct, "the destination", target)
        source = fold.cast(to_expr(value, "the value"), region.dtype)
    tracer.emit_tile(construct, Atomic(op, region, source, order=order))
    return None


def _atomic_element(
    op: str, where: Region, value: Expr | None, order: str, wanted: bool
) -> Value | None:
    tracer = require_tracer("an atomic operation")
    if not wanted:
        tracer.emit(Atomic(op, where, value, order=order))
        return None
    result = tracer.new_var("previous" if op != "load" else "loaded", where.dtype)
    tracer.emit(Atomic(op, where, value, result, order))
    tracer.define(result)
    return Value(result)


def atomic_add(
    dst: object,
    value: object,
    memory_order: object = None,
    return_prev: bool = False,
    use_tma: bool = False,
    annotations: object = None,
) -> Value | None:
    """``dst += value`` atomically, one element or each of a tile; ``use_tma`` is a hint."""
    return _atomic("T.atomic_add", "add", dst, value, memory_order, return_prev)


def _extreme(op: str) -> Callable[..., Value | None]:
    def function(
        dst: object,
        value: object,
        memory_order: object = None,
        return_prev: bool = False,
        annotations: object = None,
    ) -> Value | None:
        return _atomic(f"T.atomic_{op}", op, dst, value, memory_order, return_prev)

    text = f"``dst = {op}(dst, value)`` atomically: one element, or each element of a tile."
    return named(f"atomic_{op}", text, function)


atomic_max = _extreme("max")
atomic_min = _extreme("min")


def atomic_or(
    dst: object, value: object, memory_order: object = None, return_prev: bool = False
) -> Value | None:
    """``dst |= value`` atomically: one integer element, or each element of a tile of integers."""
    dtype = getattr(dst, "dtype", None)
    if dtype is not None and not dtype_of(dtype).is_integer:
        raise ProgramTypeError("T.atomic_or needs integers", found=str(dtype))
    return _atomic("T.atomic_or", "or", dst, value, memory_order, return_prev)


def _element(construct: str, value: object) -> Element:
    if not isinstance(value, Element):
        raise ProgramTypeError(f"{construct} works on one element, as in C[i, j]")
    return value


def atomic_load(src: object, memory_order: object = "seq_cst") -> Value:
    """The value of one element, read atomically."""
    require_launch("T.atomic_load")
    order = _order("T.atomic_load", memory_order, _LOAD_ORDERS, "seq_cst")
    where = element_region(_element("T.atomic_load", src))
    result = _atomic_element("load", where, None, order, True)
    assert result is not None
    return result


def atomic_store(dst: object, val: object, memory_order: object = "seq_cst") -> None:
    """Write one element atomically."""
    require_launch("T.atomic_store")
    order = _order("T.atomic_store", memory_order, _STORE_ORDERS, "seq_cst")
    element = _element("T.atomic_store", dst)
    expr = fold.cast(to_expr(val, "the value"), element.ref.node.dtype)
    _atomic_element("store", element_region(element), expr, order, False)


def _add_neighbours(count: int, word: str) -> Callable[..., None]:
    construct = f"T.atomic_addx{count}"

    def function(dst: object, value: object, return_prev: bool = False) -> None:
        require_launch(construct)
        if return_prev:
            raise UnsupportedConstructError(f"{construct}(return_prev=True) gives a vector")
        target, source = (_first_of(construct, count, side) for side in (dst, value))
        note_run(construct, target.ref.node)
        for step in range(count):
            where = element_region(_shifted(target, step))
            added = fold.cast(_shifted(source, step).expr, where.dtype)
            _atomic_element("add", where, added, "relaxed", False)

    text = (
        f"``dst[i] += value[i]`` atomically for {word} neighbours: each side the first, or a slice."
    )
    return named(f"atomic_addx{count}", text, function)


atomic_addx2 = _add_neighbours(2, "two")
atomic_addx4 = _add_neighbours(4, "four")


def _first_of(construct: str, count: int, side: object) -> Element:
    """The first of ``count`` neighbours: an element, or what has them and nothing else."""
    if isinstance(side, BufferRef):
        side = RegionRef(side, tile(construct, "an operand", side))
    if isinstance(side, RegionRef):
        extents = [as_int(extent) for extent in side.shape]
        if extents == [*(1 for _ in extents[1:]), count]:
            return Element(side.ref, side.region.starts)
    if isinstance(side, Element):
        return side
    raise ProgramTypeError(
        f"{construct} works on {count} neighbouring elements",
        expected=f"the first of them, as in C[i, j], or a slice of {count} in the last dimension",
        found=describe(side),
    )


def _shifted(element: Element, step: int) -> Element:
    last = fold.add(element.indices[-1], fold.const(step))
    return Element(element.ref, (*element.indices[:-1], last))
