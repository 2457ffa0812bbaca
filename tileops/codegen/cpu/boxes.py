"""Owns copies and fills of boxes: loops over rows, the in-bounds part of each known before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tileops.codegen.cpu.expressions import index, region_start, safe_value, stored
from tileops.codegen.cpu.scalar_types import storage
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir.expr import Region
from tileops.ir.stmt import Copy, Fill, Transpose
from tileops.passes.analyze_index import region_guards


@dataclass(frozen=True)
class Axis:
    """One dimension of a region that is walked: its length, step in elements, and in-bounds range.

    ``low`` and ``high`` are None where the whole length lies inside the buffer.
    """

    length: str
    step: str
    low: str | None = None
    high: str | None = None


def axes(state: LaunchState, region: Region, dims: tuple[int, ...]) -> list[Axis]:
    """The dimensions ``dims`` of a region as axes.

    Conditions on the others are folded into the last.
    """
    w, place = state.writer, state.place(region.buffer)
    flags = [(False, False)] * len(region.starts)
    if not region.buffer.is_on_chip:
        flags = list(region_guards(region, state.ranges))
    outside = _single_conditions(state, region, dims, flags)
    out = []
    for n, d in enumerate(dims):
        length = index(state, region.extents[d])
        low = high = None
        lower, upper = flags[d]
        extra = outside if n == len(dims) - 1 else []
        if lower or upper or extra:
            low, high = w.fresh("low"), w.fresh("high")
            start = index(state, region.starts[d])
            w.line(f"const i64 {low} = {f'clamp64(-({start}), 0, {length})' if lower else '0'};")
            reach = f"clamp64({place.extents[d]} - ({start}), {low}, {length})" if upper else length
            w.line(f"const i64 {high} = {_unless(extra, reach, low)};")
        out.append(Axis(length, place.strides[d], low, high))
    return out


def _unless(conditions: list[str], reach: str, low: str) -> str:
    return f"({' && '.join(conditions)}) ? {reach} : {low}" if conditions else reach


def _single_conditions(
    state: LaunchState, region: Region, dims: tuple[int, ...], flags: list[tuple[bool, bool]]
) -> list[str]:
    """In-bounds conditions of the dimensions that are not walked: each has one index."""
    place = state.place(region.buffer)
    conditions = []
    for d, start in enumerate(region.starts):
        if d in dims:
            continue
        lower, upper = flags[d]
        if lower:
            conditions.append(f"{index(state, start)} >= 0")
        if upper:
            conditions.append(f"{index(state, start)} < {place.extents[d]}")
    return conditions


def emit_copy(state: LaunchState, stmt: Copy) -> None:
    """``dst = cast(src)`` row by row; rows outside src give its safe value, outside dst nothing."""
    src_dims, dst_dims = stmt.src.walked(), stmt.dst.walked()
    if len(src_dims) != len(dst_dims):
        raise InternalError(f"copy pairs {len(src_dims)} with {len(dst_dims)} dimensions")
    emit_paired_copy(state, stmt.src, src_dims, stmt.dst, dst_dims)


def emit_transpose(state: LaunchState, stmt: Transpose) -> None:
    """``dst[..., j, i] = src[..., i, j]``."""
    n = len(stmt.src.extents)
    swapped = (*range(n - 2), n - 1, n - 2)
    emit_paired_copy(state, stmt.src, swapped, stmt.dst, tuple(range(n)))


def emit_paired_copy(
    state: LaunchState,
    src: Region,
    src_dims: tuple[int, ...],
    dst: Region,
    dst_dims: tuple[int, ...],
) -> None:
    """Copy with the dimensions of both sides paired in the order given."""
    w = state.writer
    with w.block():
        read, write = axes(state, src, src_dims), axes(state, dst, dst_dims)
        read, write = _same_lengths(read, write)
        read, write = _merged(read, write)
        from_type, to_type = storage(src.dtype), storage(dst.dtype)
        w.line(f"const {from_type}* const from = {region_start(state, src)};")
        w.line(f"{to_type}* const to = {region_start(state, dst)};")
        blank = _blank(state, src, to_type) if any(a.low for a in read) else None
        _rows(state, read, write, blank)


def _blank(state: LaunchState, src: Region, to_type: str) -> str:
    state.writer.line(
        f"const {to_type} blank = convert<{to_type}>({safe_value(state, src.buffer)});"
    )
    return "blank"


def _same_lengths(read: list[Axis], write: list[Axis]) -> tuple[list[Axis], list[Axis]]:
    """Both sides with the length that is a constant where one is."""
    out_read, out_write = [], []
    for r, v in zip(read, write, strict=True):
        length = r.length if r.length.isdigit() else v.length
        out_read.append(Axis(length, r.step, r.low, r.high))
        out_write.append(Axis(length, v.step, v.low, v.high))
    return out_read, out_write


def _merged(read: list[Axis], write: list[Axis]) -> tuple[list[Axis], list[Axis]]:
    """Inner axes joined where both sides go on in memory from one to the next, without bounds."""
    read, write = list(read), list(write)
    while len(read) > 1 and all(a.low is None for a in (*read[-2:], *write[-2:])):
        joined = [_join(side[-2], side[-1]) for side in (read, write)]
        if joined[0] is None or joined[1] is None:
            break
        read[-2:], write[-2:] = [joined[0]], [joined[1]]
    return read, write


def _join(outer: Axis, inner: Axis) -> Axis | None:
    if not all(t.isdigit() for t in (outer.length, outer.step, inner.length, inner.step)):
        return None
    if int(outer.step) != int(inner.length) * int(inner.step):
        return None
    return Axis(str(int(outer.length) * int(inner.length)), inner.step)


def _rows(state: LaunchState, read: list[Axis], write: list[Axis], blank: str | None) -> None:
    """Loops over the outer axes; ``exists`` tells whether the row lies inside src."""
    from_at, to_at = ["from"], ["to"]
    exists: list[str] = []
    heads = []
    for n, (r, v) in enumerate(zip(read[:-1], write[:-1], strict=True)):
        name = f"i{n}"
        heads.append(f"for (i64 {name} = {v.low or '0'}; {name} < {v.high or v.length}; ++{name})")
        from_at.append(f"{name} * {r.step}")
        to_at.append(f"{name} * {v.step}")
        if r.low is not None:
            exists.append(f"{name} >= {r.low} && {name} < {r.high}")
    _open(state, heads, lambda: _row(state, read[-1], write[-1], from_at, to_at, exists, blank))


def _open(state: LaunchState, heads: list[str], body: Callable[[], None]) -> None:
    if not heads:
        body()
        return
    with state.writer.block(heads[0]):
        _open(state, heads[1:], body)


def _row(
    state: LaunchState,
    r: Axis,
    v: Axis,
    from_at: list[str],
    to_at: list[str],
    exists: list[str],
    blank: str | None,
) -> None:
    w = state.writer
    source, target = " + ".join(from_at), " + ".join(to_at)
    first, last = v.low or "0", v.high or v.length
    if r.low is None and not exists:
        w.line(_span(r, v, source, target, first, last))
        return
    low, high = r.low or "0", r.high or r.length
    test = " && ".join([*exists, *([f"{low} == 0 && {high} == {r.length}"] if r.low else [])])
    if v.low is None:
        w.line(f"if ({test}) {_span(r, v, source, target, '0', r.length)}")
    with w.block("else" if v.low is None else ""):
        inside = f"({' && '.join(exists)})" if exists else "true"
        w.line(f"const i64 a = {inside} ? clamp64({low}, {first}, {last}) : {last};")
        w.line(f"const i64 b = {inside} ? clamp64({high}, a, {last}) : {last};")
        w.line(f"fill_row({target} + {first} * {v.step}, {v.step}, {blank}, a - {first});")
        w.line(_span(r, v, source, target, "a", "b"))
        w.line(f"fill_row({target} + b * {v.step}, {v.step}, {blank}, {last} - b);")


def _span(r: Axis, v: Axis, source: str, target: str, first: str, last: str) -> str:
    """The copy of elements first..last of one row."""
    count = last if first == "0" else f"{last} - {first}"
    from_at = source if first == "0" else f"{source} + {first} * {r.step}"
    to_at = target if first == "0" else f"{target} + {first} * {v.step}"
    if r.step == "1" and v.step == "1":
        return f"copy_row({to_at}, {from_at}, {count});"
    return f"copy_strided({to_at}, {v.step}, {from_at}, {r.step}, {count});"


def emit_fill(state: LaunchState, stmt: Fill) -> None:
    """Every element of a region that exists becomes one value."""
    w, region = state.writer, stmt.dst
    with w.block():
        write = axes(state, region, region.walked())
        write, _ = _merged(write, write)
        kind = storage(region.dtype)
        w.line(f"const {kind} what = {stored(state, stmt.value)};")
        w.line(f"{kind}* const to = {region_start(state, region)};")
        at = ["to"]
        heads = []
        for n, axis in enumerate(write[:-1]):
            heads.append(
                f"for (i64 i{n} = {axis.low or '0'}; i{n} < {axis.high or axis.length}; ++i{n})"
            )
            at.append(f"i{n} * {axis.step}")
        last = write[-1]
        if last.low is not None:
            at.append(f"{last.low} * {last.step}")
        count = last.length if last.low is None else f"{last.high} - {last.low}"
        target = " + ".join(at)
        _open(state, heads, lambda: w.line(f"fill_row({target}, {last.step}, what, {count});"))
