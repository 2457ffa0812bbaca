"""Owns reductions and scans of tiles: which lines are folded, and the call that folds one."""

from __future__ import annotations

from tileops.codegen.cpu.expressions import region_start
from tileops.codegen.cpu.scalar_types import storage
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir.expr import Region
from tileops.ir.program import const_value
from tileops.ir.stmt import Reduce, Scan

_KINDS = {
    "sum": "Sum",
    "max": "Max",
    "min": "Min",
    "absmax": "AbsMax",
    "abssum": "AbsSum",
    "bitand": "BitAnd",
    "bitor": "BitOr",
    "bitxor": "BitXor",
}


def emit_reduce(state: LaunchState, stmt: Reduce) -> None:
    """``dst (fold)= reduce(src, dim)`` in dst's dtype."""
    w, src, dst = state.writer, stmt.src, stmt.dst
    kind = _KINDS[stmt.kind]
    if stmt.nan_propagate and kind in ("Max", "Min", "AbsMax"):
        kind += "Nan"
    pairs = list(stmt.pairs())
    steps, targets = state.place(src.buffer).strides, state.place(dst.buffer).strides
    length, step = _extent(src, stmt.dim), steps[stmt.dim]
    with w.block():
        _pointers(state, src, dst)
        by_columns = (
            bool(pairs)
            and step != "1"
            and steps[pairs[-1][0]] == "1"
            and targets[pairs[-1][1]] == "1"
        )
        walked = pairs[:-1] if by_columns else pairs
        source, target = _line_starts(walked, steps, targets)
        with w.block(_heads(src, walked)):
            if by_columns:
                _columns(
                    state, stmt, kind, source, target, _extent(src, pairs[-1][0]), length, step
                )
            else:
                _row(state, stmt, kind, source, target, length, step)


def _heads(src: Region, walked: list[tuple[int, int]]) -> str:
    """The loop heads over ``walked``, on one line each nested in the one before."""
    return " ".join(
        f"for (i64 i{n} = 0; i{n} < {_extent(src, d)}; ++i{n})" for n, (d, _) in enumerate(walked)
    )


def _line_starts(
    walked: list[tuple[int, int]], steps: tuple[str, ...], targets: tuple[str, ...]
) -> tuple[str, str]:
    """Pointers to the line's first element and to its result, in terms of the loop variables."""
    source = " + ".join(["from", *(f"i{n} * {steps[d]}" for n, (d, _) in enumerate(walked))])
    target = " + ".join(["to", *(f"i{n} * {targets[t]}" for n, (_, t) in enumerate(walked))])
    return source, target


def _pointers(state: LaunchState, src: Region, dst: Region) -> None:
    state.writer.line(f"const {storage(src.dtype)}* const from = {region_start(state, src)};")
    state.writer.line(f"{storage(dst.dtype)}* const to = {region_start(state, dst)};")


def _row(
    state: LaunchState, stmt: Reduce, kind: str, source: str, target: str, length: int, step: str
) -> None:
    w, element = state.writer, storage(stmt.dst.dtype)
    w.line(f"{element}* const out = {target};")
    w.line(
        f"const ValueOf<{element}> line = "
        f"reduce_row<{kind}, {element}>({source}, {step}, {length});"
    )
    result = "line" if stmt.clear else f"{kind}<{element}>::join(widen(*out), line)"
    w.line(f"*out = encode<{element}>({result});")


def _columns(
    state: LaunchState,
    stmt: Reduce,
    kind: str,
    source: str,
    target: str,
    count: int,
    length: int,
    step: str,
) -> None:
    w, element = state.writer, storage(stmt.dst.dtype)
    w.line(f"{element}* const out = {target};")
    if stmt.clear:
        w.line(f"fill_row(out, 1, encode<{element}>({kind}<{element}>::start), {count});")
    w.line(f"reduce_columns<{kind}, {element}>(out, {source}, {step}, {length}, {count});")


def emit_scan(state: LaunchState, stmt: Scan) -> None:
    """An inclusive scan along one dimension, in dst's dtype."""
    w, src, dst = state.writer, stmt.src, stmt.dst
    kind, element = _KINDS[stmt.kind], storage(dst.dtype)
    dst_dim = _matching(src, dst, stmt.dim)
    pairs = list(zip(_others(src, stmt.dim), _others(dst, dst_dim), strict=True))
    steps, targets = state.place(src.buffer).strides, state.place(dst.buffer).strides
    with w.block():
        _pointers(state, src, dst)
        source, target = _line_starts(pairs, steps, targets)
        with w.block(_heads(src, pairs)):
            w.line(
                f"scan_line<{kind}, {element}>({target}, {targets[dst_dim]}, {source}, "
                f"{steps[stmt.dim]}, {_extent(src, stmt.dim)}, "
                f"{'true' if stmt.reverse else 'false'});"
            )


def _matching(src: Region, dst: Region, dim: int) -> int:
    """The dimension of ``dst`` that pairs with ``dim`` of ``src``."""
    if len(src.extents) == len(dst.extents):
        return dim
    kept = src.squeezed()
    return dst.squeezed()[kept.index(dim)] if dim in kept else len(dst.extents) - 1


def _others(region: Region, dim: int) -> tuple[int, ...]:
    """The dimensions of extent other than 1, without ``dim``."""
    return tuple(d for d in region.squeezed() if d != dim)


def _extent(region: Region, dim: int) -> int:
    value = const_value(region.extents[dim])
    if value is None:
        raise InternalError(
            f"the region of {region.buffer.name} has no static extent in dimension {dim}"
        )
    return value
