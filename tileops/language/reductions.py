"""Owns reductions and scans of tiles."""

from __future__ import annotations

from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Expr, Region
from tileops.ir.stmt import REDUCE_KINDS, Reduce, Scan
from tileops.language.linear import is_one
from tileops.language.operands import format_extents, matrix, same_extents, show, tile
from tileops.language.tracer import require_tracer
from tileops.language.value import as_int, describe

_BIT_KINDS = ("bitand", "bitor", "bitxor")


def reduce(
    buffer: object,
    out: object,
    reduce_type: str,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: object = None,
) -> None:
    """Reduce ``buffer`` along ``dim`` into ``out``, accumulated in ``out``'s dtype.

    Without ``clear`` the old ``out`` takes part. ``out`` has ``buffer``'s shape without ``dim``, or
    with extent 1 there. ``batch`` is a hint.
    """
    kind = str(reduce_type)
    if kind not in REDUCE_KINDS:
        raise ProgramValueError(
            "T.reduce: unknown kind", expected=", ".join(REDUCE_KINDS), found=repr(reduce_type)
        )
    _reduce(f"T.reduce_{kind}", kind, buffer, out, dim, clear, nan_propagate)


def _reduce(
    construct: str,
    kind: str,
    buffer: object,
    out: object,
    dim: int,
    clear: bool,
    nan_propagate: bool,
) -> None:
    tracer = require_tracer(construct)
    src, dst = matrix(construct, "the source", buffer), tile(construct, "the destination", out)
    for region in (src, dst):
        if region.buffer.scope == "global":
            raise ProgramValueError(
                f"{construct} works on tiles on the chip; T.copy the tensor to a fragment first",
                found=show(region),
            )
    axis = _axis(construct, src, dim)
    _check_shapes(construct, src, dst, axis)
    if kind in _BIT_KINDS and (src.dtype.is_float or dst.dtype.is_float):
        raise ProgramTypeError(f"{construct} needs integers", found=f"{src.dtype}")
    if not isinstance(clear, (bool, int)):
        raise ProgramTypeError(f"{construct}: clear must be a Python bool", found=describe(clear))
    stmt = Reduce(kind, src, dst, axis, bool(clear), bool(nan_propagate))
    tracer.emit_tile(construct, stmt)


def _axis(construct: str, region: Region, dim: object) -> int:
    number, ndim = as_int(dim), len(region.extents)
    if number is None:
        raise ProgramTypeError(f"{construct}: dim must be an int", found=describe(dim))
    if not -ndim <= number < ndim:
        raise ProgramValueError(
            f"{construct}: dim {number} is outside the source's {ndim} dimensions",
            found=show(region),
        )
    return number % ndim


def _check_shapes(construct: str, src: Region, dst: Region, axis: int) -> None:
    removed = (*src.extents[:axis], *src.extents[axis + 1 :])
    kept: tuple[Expr, ...] = (*src.extents[:axis], fold.const(1), *src.extents[axis + 1 :])
    shapes = (removed, kept) if removed else (kept,)
    # A slice such as out[stage, :] has leading extents of 1 that the source does not have.
    dst_core = dst.extents
    while len(dst_core) > len(kept) and is_one(dst_core[0]):
        dst_core = dst_core[1:]
    if any(same_extents(s, dst_core) for s in shapes):
        return
    if len(dst_core) == len(kept) and is_one(dst_core[0]) and same_extents(removed, dst_core[1:]):
        return
    raise ProgramValueError(
        f"{construct}: the destination does not have the source's shape without dimension {axis}",
        expected=" or ".join(format_extents(s) for s in shapes),
        found=show(dst),
    )


def reduce_sum(
    buffer: object,
    out: object,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: object = None,
) -> None:
    """Sum along ``dim``, accumulated in ``out``'s dtype."""
    _reduce("T.reduce_sum", "sum", buffer, out, dim, clear, False)


def reduce_max(
    buffer: object,
    out: object,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: object = None,
) -> None:
    """Maximum along ``dim``.

    A number is preferred to NaN, and NaNs alone give NaN; with ``nan_propagate`` any NaN does.
    """
    _reduce("T.reduce_max", "max", buffer, out, dim, clear, nan_propagate)


def reduce_min(
    buffer: object,
    out: object,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: object = None,
) -> None:
    """Minimum along ``dim``.

    A number is preferred to NaN, and NaNs alone give NaN; with ``nan_propagate`` any NaN does.
    """
    _reduce("T.reduce_min", "min", buffer, out, dim, clear, nan_propagate)


def reduce_absmax(
    buffer: object,
    out: object,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: object = None,
) -> None:
    """Largest magnitude along ``dim``.

    A number is preferred to NaN, and NaNs alone give NaN; with ``nan_propagate`` any NaN does.
    """
    _reduce("T.reduce_absmax", "absmax", buffer, out, dim, clear, nan_propagate)


def reduce_abssum(
    buffer: object, out: object, dim: int = -1, batch: int = 1, annotations: object = None
) -> None:
    """Sum of magnitudes along ``dim``; always starts from 0."""
    _reduce("T.reduce_abssum", "abssum", buffer, out, dim, True, False)


def reduce_bitand(
    buffer: object,
    out: object,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: object = None,
) -> None:
    """Bitwise and along ``dim``, integers or bools."""
    _reduce("T.reduce_bitand", "bitand", buffer, out, dim, clear, False)


def reduce_bitor(
    buffer: object,
    out: object,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: object = None,
) -> None:
    """Bitwise or along ``dim``, integers or bools."""
    _reduce("T.reduce_bitor", "bitor", buffer, out, dim, clear, False)


def reduce_bitxor(
    buffer: object,
    out: object,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: object = None,
) -> None:
    """Bitwise exclusive or along ``dim``, integers or bools."""
    _reduce("T.reduce_bitxor", "bitxor", buffer, out, dim, clear, False)


def cumsum(
    src: object, dst: object = None, dim: int = 0, reverse: bool = False, annotations: object = None
) -> None:
    """Inclusive sum along ``dim``, in place where ``dst`` is None."""
    _scan("T.cumsum", "sum", src, dst, dim, reverse)


def cummax(
    src: object, dst: object = None, dim: int = 0, reverse: bool = False, annotations: object = None
) -> None:
    """Inclusive running maximum along ``dim``, in place where ``dst`` is None.

    A number is preferred to NaN: an element is NaN where all elements up to it are.
    """
    _scan("T.cummax", "max", src, dst, dim, reverse)


def cummin(
    src: object, dst: object = None, dim: int = 0, reverse: bool = False, annotations: object = None
) -> None:
    """Inclusive running minimum along ``dim``, in place where ``dst`` is None.

    A number is preferred to NaN: an element is NaN where all elements up to it are.
    """
    _scan("T.cummin", "min", src, dst, dim, reverse)


def _scan(construct: str, kind: str, src: object, dst: object, dim: int, reverse: bool) -> None:
    tracer = require_tracer(construct)
    source = matrix(construct, "the source", src)
    target = source if dst is None else matrix(construct, "the destination", dst)
    if not same_extents(source.extents, target.extents):
        raise ProgramValueError(
            f"{construct}: source and destination have different shapes",
            expected=format_extents(source.extents),
            found=show(target),
        )
    axis = _axis(construct, source, dim)
    tracer.emit_tile(construct, Scan(kind, source, target, axis, bool(reverse)))
