"""Copies and fills of boxes: loops over rows, the in-bounds part of each known before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tileops.codegen.cpu.expressions import index, region_start, safe_value, stored
from tileops.codegen.cpu.scalar_types import storage
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir.expr import Region
from tileops.ir.stmt import Copy, Fill, Transpose
from tileops.passes.analyze_index import region_guards

Dims = tuple[int, ...]


@dataclass(frozen=True)
class _Axis:
    """A dimension of a region that is walked: its length, step in elements, in-bounds range."""

    length: str
    step: str
    low: str | None = None  # where the whole length is inside the buffer
    high: str | None = None

    @property
    def first(self) -> str:
        return self.low or "0"

    @property
    def last(self) -> str:
        return self.high or self.length

    def loop(self, name: str) -> str:
        """The head of a loop over the elements that exist."""
        return f"for (i64 {name} = {self.first}; {name} < {self.last}; ++{name})"


def _axes(state: LaunchState, region: Region, dims: Dims) -> list[_Axis]:
    """The dimensions ``dims`` of a region; conditions on the others are folded into the last."""
    w, place = state.writer, state.place(region.buffer)
    flags = [(False, False)] * len(region.starts)
    if not region.buffer.is_on_chip:
        flags = list(region_guards(region, state.ranges))
    outside = []
    for d, start in enumerate(region.starts):
        if d not in dims and flags[d][0]:
            outside.append(f"{index(state, start)} >= 0")
        if d not in dims and flags[d][1]:
            outside.append(f"{index(state, start)} < {place.extents[d]}")
    out = []
    for d in dims:
        length = index(state, region.extents[d])
        low = high = None
        lower, upper = flags[d]
        extra = outside if d == dims[-1] else []
        if lower or upper or extra:
            low, high = w.fresh("low"), w.fresh("high")
            at = index(state, region.starts[d])
            w.line(f"const i64 {low} = {f'clamp64(-({at}), 0, {length})' if lower else '0'};")
            reach = f"clamp64({place.extents[d]} - ({at}), {low}, {length})" if upper else length
            reach = f"({' && '.join(extra)}) ? {reach} : {low}" if extra else reach
            w.line(f"const i64 {high} = {reach};")
        out.append(_Axis(length, place.strides[d], low, high))
    return out


def emit_copy(state: LaunchState, stmt: Copy) -> None:
    """``dst = cast(src)`` row by row; rows outside src give its safe value, outside dst nothing."""
    src_dims, dst_dims = stmt.src.walked(), stmt.dst.walked()
    if len(src_dims) != len(dst_dims):
        raise InternalError(f"copy pairs {len(src_dims)} with {len(dst_dims)} dimensions")
    _copy(state, stmt.src, src_dims, stmt.dst, dst_dims)


def emit_transpose(state: LaunchState, stmt: Transpose) -> None:
    """``dst[..., j, i] = src[..., i, j]``."""
    n = len(stmt.src.extents)
    swapped = (*range(n - 2), n - 1, n - 2)
    _copy(state, stmt.src, swapped, stmt.dst, tuple(range(n)))


def _copy(state: LaunchState, src: Region, src_dims: Dims, dst: Region, dst_dims: Dims) -> None:
    """Copy with the dimensions of both sides paired in the order given."""
    w = state.writer
    with w.block():
        read, write = _axes(state, src, src_dims), _axes(state, dst, dst_dims)
        for n, (r, v) in enumerate(zip(read, write, strict=True)):
            # Both sides have the length that is a constant where one is.
            length = r.length if r.length.isdigit() else v.length
            read[n], write[n] = replace(r, length=length), replace(v, length=length)
        read, write = _merged(read, write)
        to_type = storage(dst.dtype)
        w.line(f"const {storage(src.dtype)}* const from = {region_start(state, src)};")
        w.line(f"{to_type}* const to = {region_start(state, dst)};")
        if any(a.low for a in read):
            blank = safe_value(state, src.buffer)
            w.line(f"const {to_type} blank = convert<{to_type}>({blank});")
        _rows(state, read, write)


def _merged(read: list[_Axis], write: list[_Axis]) -> tuple[list[_Axis], list[_Axis]]:
    """Inner axes joined where both sides go on in memory from one to the next, without bounds."""
    read, write = list(read), list(write)
    while len(read) > 1 and all(a.low is None for a in (*read[-2:], *write[-2:])):
        joined = [_join(side[-2], side[-1]) for side in (read, write)]
        if joined[0] is None or joined[1] is None:
            break
        read[-2:], write[-2:] = [joined[0]], [joined[1]]
    return read, write


def _join(outer: _Axis, inner: _Axis) -> _Axis | None:
    if not all(t.isdigit() for t in (outer.length, outer.step, inner.length, inner.step)):
        return None
    if int(outer.step) != int(inner.length) * int(inner.step):
        return None
    return _Axis(str(int(outer.length) * int(inner.length)), inner.step)


def _rows(state: LaunchState, read: list[_Axis], write: list[_Axis]) -> None:
    """Loops over the outer axes, and the copy of one row inside them."""
    source, target = "from", "to"
    heads, exists = [], []  # the second: the row is inside src
    for n, (r, v) in enumerate(zip(read[:-1], write[:-1], strict=True)):
        heads.append(v.loop(f"i{n}"))
        source += f" + i{n} * {r.step}"
        target += f" + i{n} * {v.step}"
        if r.low is not None:
            exists.append(f"i{n} >= {r.low} && i{n} < {r.high}")
    w, r, v = state.writer, read[-1], write[-1]
    with w.nested(heads):
        if r.low is None and not exists:
            w.line(_span(r, v, source, target, v.first, v.last))
            return
        if v.low is None:
            whole = [f"{r.low} == 0 && {r.high} == {r.length}"] if r.low else []
            test = " && ".join([*exists, *whole])
            w.line(f"if ({test}) {_span(r, v, source, target, '0', r.length)}")
        with w.block("else" if v.low is None else ""):
            inside = f"({' && '.join(exists)})" if exists else "true"
            w.line(f"const i64 a = {inside} ? clamp64({r.first}, {v.first}, {v.last}) : {v.last};")
            w.line(f"const i64 b = {inside} ? clamp64({r.last}, a, {v.last}) : {v.last};")
            w.line(f"fill_row({target} + {v.first} * {v.step}, {v.step}, blank, a - {v.first});")
            w.line(_span(r, v, source, target, "a", "b"))
            w.line(f"fill_row({target} + b * {v.step}, {v.step}, blank, {v.last} - b);")


def _span(r: _Axis, v: _Axis, source: str, target: str, first: str, last: str) -> str:
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
        axes = _axes(state, region, region.walked())
        *outer, last = _merged(axes, axes)[0]
        kind = storage(region.dtype)
        w.line(f"const {kind} what = {stored(state, stmt.value)};")
        w.line(f"{kind}* const to = {region_start(state, region)};")
        at = ["to", *(f"i{n} * {axis.step}" for n, axis in enumerate(outer))]
        count = last.length
        if last.low is not None:
            at.append(f"{last.low} * {last.step}")
            count = f"{last.high} - {last.low}"
        with w.nested([axis.loop(f"i{n}") for n, axis in enumerate(outer)]):
            w.line(f"fill_row({' + '.join(at)}, {last.step}, what, {count});")
