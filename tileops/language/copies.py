"""Tile operations that move or set data: copy, fill, clear, transpose and im2col."""

from __future__ import annotations

from tileops.errors import ProgramTypeError, ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Const, Region
from tileops.ir.stmt import Copy, Fill, Im2col, Transpose
from tileops.language.buffers import BufferRef, Element
from tileops.language.index_arithmetic import constant_difference
from tileops.language.operands import (
    format_extents,
    from_start,
    matrix,
    operand,
    same_extents,
    show,
    tile,
    with_squeezed_extents,
)
from tileops.language.tracer import require_tracer
from tileops.language.value import index_expr, to_expr

__all__ = ["clear", "copy", "fill", "im2col", "transpose"]


def copy(
    src: object,
    dst: object,
    *,
    coalesced_width: object = None,
    disable_tma: bool = False,
    eviction_policy: object = None,
    prefer_instruction: object = None,
    annotations: object = None,
    loop_layout: object = None,
) -> None:
    """Copy a tile, converting to the destination's dtype.

    Out-of-bounds reads give 0, out-of-bounds writes are dropped.

    Each side is a buffer, a slice, or a start element that takes the other side's extents. The
    keyword arguments are hints.
    """
    tracer = require_tracer("T.copy")
    if isinstance(src, Element) and isinstance(dst, Element):
        dst.store(src)
        return
    tracer.emit_tile("T.copy", Copy(*copy_regions("T.copy", src, dst)))


def copy_regions(construct: str, src: object, dst: object) -> tuple[Region, Region]:
    """Both sides of an elementwise tile operation as regions of equal extents."""
    source, target = tile(construct, "the source", src), tile(construct, "the destination", dst)
    if isinstance(src, Element):
        return from_start(construct, src, target.extents), target
    if isinstance(dst, Element):
        return source, from_start(construct, dst, source.extents)
    both_whole = isinstance(src, BufferRef) and isinstance(dst, BufferRef)
    left, right = source.squeezed_extents(), target.squeezed_extents()
    mismatch = ProgramValueError(
        f"{construct}: the two sides have different shapes",
        expected=f"the shape of the destination, {show(target)}",
        found=f"source {show(source)}",
    )
    if len(left) != len(right) or (both_whole and not same_extents(left, right)):
        raise mismatch
    # The side nearer to the threads gives the extents of the copy.
    if source.buffer.level >= target.buffer.level:
        return source, with_squeezed_extents(target, left)
    for mine, other in zip(right, left, strict=True):
        gap = constant_difference(mine, other)
        if gap is not None and gap < 0:
            raise mismatch
    return with_squeezed_extents(source, right), target


def fill(buffer: object, value: object, annotations: object = None) -> None:
    """Set every element of a buffer, slice or element to ``value``, converted to its dtype."""
    _fill("T.fill", buffer, value)


def clear(buffer: object) -> None:
    """Set every element of a buffer, slice, element or scalar variable to 0."""
    _fill("T.clear", buffer, 0)


def _fill(construct: str, buffer: object, value: object) -> None:
    tracer = require_tracer(construct)
    target = operand(construct, "the target", buffer)
    expr = to_expr(value, "the fill value")
    if isinstance(target, Element):
        target.store(value)
        return
    region = tile(construct, "the target", target)
    sides = zip(region.starts, region.extents, region.buffer.shape, strict=True)
    for dim, side in enumerate(sides):
        known = [int(e.value) for e in side if isinstance(e, Const)]
        if len(known) == 3 and known[0] + known[1] > known[2]:
            raise ProgramValueError(
                f"{construct}: dimension {dim} ends outside the buffer", found=show(region)
            )
    tracer.emit_tile(construct, Fill(region, fold.cast(expr, region.dtype)))


def transpose(src: object, dst: object, annotations: object = None) -> None:
    """``dst[..., j, i] = src[..., i, j]``."""
    tracer = require_tracer("T.transpose")
    source = matrix("T.transpose", "the source", src)
    target = matrix("T.transpose", "the destination", dst)
    swapped = (*source.extents[:-2], *source.extents[-2:][::-1])
    if len(source.extents) < 2 or not same_extents(swapped, target.extents):
        raise ProgramValueError(
            "T.transpose: the destination is not the source with its last two dimensions swapped",
            expected=format_extents(swapped),
            found=show(target),
        )
    tracer.emit_tile("T.transpose", Transpose(source, target))


def im2col(
    img: object,
    col: object,
    nhw_step: object,
    c_step: object,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    eviction_policy: object = None,
    annotations: object = None,
) -> None:
    """Gather one tile of an NHWC image as the matrix of an implicit GEMM, zero padded.

    The tile is at (``nhw_step``, ``c_step``) in units of tiles; kernel, stride, dilation and pad
    are square.
    """
    tracer = require_tracer("T.im2col")
    if not isinstance(img, BufferRef) or img.ndim != 4:
        raise ProgramTypeError("T.im2col: the image must be a 4-D NHWC buffer")
    target = matrix("T.im2col", "the tile", col)
    if len(target.squeezed()) > 2:
        raise ProgramValueError("T.im2col: the tile must have two dimensions", found=show(target))
    steps = index_expr(nhw_step, "nhw_step"), index_expr(c_step, "c_step")
    sizes = int(kernel), int(stride), int(dilation), int(pad)
    tracer.emit_tile("T.im2col", Im2col(img.node, target, *steps, *sizes))
