"""Tile operations that are calls of csrc/cpu: matrix products, reductions and scans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tileops.codegen.cpu.expressions import region_start, value
from tileops.codegen.cpu.scalar_types import is_narrow_float, storage
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir.expr import Region
from tileops.ir.program import const_value
from tileops.ir.stmt import ArgReduce, Gemm, Reduce, Scan

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


def emit_gemm(state: LaunchState, stmt: Gemm) -> None:
    """``c (+)= op(a) @ op(b)`` on the last two dimensions."""
    rounding = is_narrow_float(stmt.c.dtype)
    name, space = ("gemm_rounding", "") if rounding else ("gemm", f", {state.gemm_space}")
    sizes, operands = _gemm_texts(state, stmt)
    state.writer.line(f"{name}<{storage(stmt.c.dtype)}, {sizes}>({operands}{space});")


def emit_warp_gemm(state: LaunchState, stmt: Gemm) -> None:
    """The same by the warps of a launch of threads."""
    dtypes = ", ".join(storage(region.dtype) for region in (stmt.a, stmt.b, stmt.c))
    sizes, operands = _gemm_texts(state, stmt)
    state.writer.line(f"warp_gemm<{dtypes}, {sizes}>(me, {operands});")


def _gemm_texts(state: LaunchState, stmt: Gemm) -> tuple[str, str]:
    """Sizes and flags, and the operands with their strides and the condition of a start from 0."""
    depth = _extent(stmt.a, -2 if stmt.transpose_a else -1)
    sizes = f"{_extent(stmt.c, -2)}, {_extent(stmt.c, -1)}, {depth}"
    flags = f"{_flag(stmt.transpose_a)}, {_flag(stmt.transpose_b)}"
    regions = (stmt.a, stmt.b, stmt.c)
    starts = [f"{region_start(state, r)}, {state.place(r.buffer).strides[-2]}" for r in regions]
    return f"{sizes}, {flags}", ", ".join([*starts, value(state, stmt.clear)])


def emit_reduce(state: LaunchState, stmt: Reduce) -> None:
    """``dst (fold)= reduce(src, dim)`` in dst's dtype."""
    w, src, dst = state.writer, stmt.src, stmt.dst
    kind, element = _KINDS[stmt.kind], storage(dst.dtype)
    if stmt.nan_propagate and kind in ("Max", "Min", "AbsMax"):
        kind += "Nan"
    pairs = list(stmt.pairs())
    steps, targets = state.place(src.buffer).strides, state.place(dst.buffer).strides
    length, step = _extent(src, stmt.dim), steps[stmt.dim]
    columns = None
    if pairs and step != "1" and steps[pairs[-1][0]] == targets[pairs[-1][1]] == "1":
        columns = _extent(src, pairs.pop()[0])  # whole rows are folded into one
    with _lines(state, src, dst, pairs) as (source, target):
        w.line(f"{element}* const out = {target};")
        if columns is None:
            w.line(
                f"const ValueOf<{element}> line = "
                f"reduce_row<{kind}, {element}>({source}, {step}, {length});"
            )
            result = "line" if stmt.clear else f"{kind}<{element}>::join(widen(*out), line)"
            w.line(f"*out = encode<{element}>({result});")
            return
        if stmt.clear:
            w.line(f"fill_row(out, 1, encode<{element}>({kind}<{element}>::start), {columns});")
        w.line(f"reduce_columns<{kind}, {element}>(out, {source}, {step}, {length}, {columns});")


def emit_arg_reduce(state: LaunchState, stmt: ArgReduce) -> None:
    """``dst`` is the place along ``dim`` of the largest or smallest element."""
    step, length = state.place(stmt.src.buffer).strides[stmt.dim], _extent(stmt.src, stmt.dim)
    with _lines(state, stmt.src, stmt.dst, stmt.pairs()) as (source, target):
        is_max = _flag(stmt.kind == "max")
        state.writer.line(f"*({target}) = place_in_row<{is_max}>({source}, {step}, {length});")


def emit_scan(state: LaunchState, stmt: Scan) -> None:
    """An inclusive scan along one dimension, in dst's dtype."""
    src, dst = stmt.src, stmt.dst
    kind, element = _KINDS[stmt.kind], storage(dst.dtype)
    pairs = [(d, d) for d in src.squeezed() if d != stmt.dim]
    steps, targets = state.place(src.buffer).strides, state.place(dst.buffer).strides
    with _lines(state, src, dst, pairs) as (source, target):
        state.writer.line(
            f"scan_line<{kind}, {element}>({target}, {targets[stmt.dim]}, {source}, "
            f"{steps[stmt.dim]}, {_extent(src, stmt.dim)}, {_flag(stmt.reverse)});"
        )


@contextmanager
def _lines(
    state: LaunchState, src: Region, dst: Region, walked: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, str]]:
    """Loops over pairs of dimensions; gives pointers to the start of a line and to its result."""
    w = state.writer
    steps, targets = state.place(src.buffer).strides, state.place(dst.buffer).strides
    source = ["from", *(f"i{n} * {steps[d]}" for n, (d, _) in enumerate(walked))]
    target = ["to", *(f"i{n} * {targets[t]}" for n, (_, t) in enumerate(walked))]
    heads = (
        f"for (i64 i{n} = 0; i{n} < {_extent(src, d)}; ++i{n})" for n, (d, _) in enumerate(walked)
    )
    with w.block():
        w.line(f"const {storage(src.dtype)}* const from = {region_start(state, src)};")
        w.line(f"{storage(dst.dtype)}* const to = {region_start(state, dst)};")
        with w.block(" ".join(heads)):
            yield " + ".join(source), " + ".join(target)


def _extent(region: Region, dim: int) -> int:
    value = const_value(region.extents[dim])
    if value is None:
        name = region.buffer.name
        raise InternalError(f"the region of {name} has no static extent in dimension {dim}")
    return value


def _flag(value: bool) -> str:
    return "true" if value else "false"
