"""Owns 8-bit floats on targets without them: tiles and tensors of bytes, converted by integers.

The conversions are the calls ``e4m3_value``, ``e4m3_bits``, ``e5m2_value`` and ``e5m2_bits``: from
a byte to the float32 that it stands for, and back with one rounding to nearest even.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from tileops.dtypes import DType
from tileops.errors import UnsupportedOnTargetError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Call, Cast, Const, Expr, Load, Region, Select, Var
from tileops.ir.program import Program, TensorParam
from tileops.ir.stmt import (
    Alloc,
    Atomic,
    Bind,
    Body,
    Copy,
    Fill,
    Gemm,
    Im2col,
    Launch,
    Parallel,
    Print,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
    View,
)
from tileops.ir.walk import fresh_ids, map_children, map_stmt_exprs, sub_bodies, with_bodies
from tileops.passes.context import Context

_BYTE, _HALF, _FLOAT32, _INT32 = DType("uint8"), DType("float16"), DType("float32"), DType("int32")
_NAMES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_ZERO = fold.const(0)


def hold_fp8_as_bytes(program: Program, context: Context) -> Program:
    """``program`` without 8-bit floats, where the target has none.

    Before, ``round_fp8`` has left no arithmetic on them. UnsupportedOnTargetError for what has no
    exact form.
    """
    if context.target.supports("convert", DType("float8_e4m3fn")):
        return program
    rewriter = _Rewriter(fresh_ids(program))
    launches = tuple(map(rewriter.launch, program.launches))
    params = tuple(
        dataclasses.replace(p, buffer=_held(p.buffer)) if isinstance(p, TensorParam) else p
        for p in program.params
    )
    workspaces = tuple(map(_held, program.workspaces))
    return dataclasses.replace(program, params=params, workspaces=workspaces, launches=launches)


def _held(buffer: Buffer) -> Buffer:
    return dataclasses.replace(buffer, dtype=_BYTE) if buffer.dtype.is_fp8 else buffer


def _region(region: Region) -> Region:
    return dataclasses.replace(region, buffer=_held(region.buffer))


def _expr(expr: Expr) -> Expr:
    """``expr`` with bytes for 8-bit floats."""
    new = map_children(expr, _expr)
    match expr, new:
        case Const(value=value), _ if expr.dtype.is_fp8:
            return _converted(Const(_FLOAT32, float(value)), _FLOAT32, expr.dtype)
        case Load(), Load():
            buffer = _held(new.buffer)
            return dataclasses.replace(new, buffer=buffer, dtype=buffer.dtype)
        case Cast(a=old), Cast(a=a):
            return _converted(a, old.dtype, expr.dtype)
        case Call(name="reinterpret", args=(old,)), Call(args=(a,)) if (
            expr.dtype.is_fp8 or old.dtype.is_fp8
        ):
            dtype = _BYTE if expr.dtype.is_fp8 else expr.dtype
            return a if a.dtype == dtype else fold.call("reinterpret", a, dtype=dtype)
        case Select() | Var(), _ if expr.dtype.is_fp8:
            return dataclasses.replace(new, dtype=_BYTE)
        case _:
            return new


def _converted(a: Expr, source: DType, target: DType) -> Expr:
    """``a``, which holds a value of ``source``, as a value of ``target``."""
    if source == target:
        return a
    if source.is_fp8:
        a = Call(_FLOAT32, f"{_NAMES[str(source)]}_value", (a,))
    if target.is_fp8:
        narrow = fold.cast(a, _FLOAT32)
        if a.dtype == "float64":  # rounded to odd on the way, so that it is rounded once
            narrow = Call(_FLOAT32, "odd_float32", (a,))
        return Call(_BYTE, f"{_NAMES[str(target)]}_bits", (narrow,))
    return fold.cast(a, target)


class _Rewriter:
    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids

    def launch(self, launch: Launch) -> Launch:
        """The launch with bytes for 8-bit floats."""
        safe = tuple((_held(b), _expr(v)) for b, v in launch.safe_values)
        return dataclasses.replace(launch, body=self._body(launch.body), safe_values=safe)

    def _body(self, body: Body) -> Body:
        return tuple(new for stmt in body for new in self._rewritten(stmt))

    def _rewritten(self, stmt: Stmt) -> Iterable[Stmt]:
        new = map_stmt_exprs(stmt, _expr)
        if inner := sub_bodies(new):
            return [with_bodies(new, tuple(map(self._body, inner)))]
        match new:
            case Alloc(buffer=buffer) | Store(buffer=buffer):
                return [dataclasses.replace(new, buffer=_held(buffer))]
            case Bind(var=var) if var.dtype.is_fp8:
                return [dataclasses.replace(new, var=dataclasses.replace(var, dtype=_BYTE))]
            case View(buffer=buffer, source=source):
                return [View(_held(buffer), _held(source), **new.provenance)]
            case Copy(src=src, dst=dst):
                return [self._copy(new, src, dst)]
            case Fill(dst=dst):
                return [dataclasses.replace(new, dst=_region(dst))]
            case Gemm() | Reduce() | Scan() | Transpose() | Im2col() | Atomic() | Print():
                return self._computing(new)
            case _:
                return [new]

    def _copy(self, stmt: Copy, src: Region, dst: Region) -> Stmt:
        if src.dtype == dst.dtype or not (src.dtype.is_fp8 or dst.dtype.is_fp8):
            return dataclasses.replace(stmt, src=_region(src), dst=_region(dst))
        return self._converting(src, dst, stmt)

    def _converting(self, src: Region, dst: Region, stmt: Stmt) -> Parallel:
        """``dst = src`` as a nest over the extents that the copy has."""
        lead = dst if dst.buffer.is_on_chip else src
        sizes = [lead.extents[d] for d in lead.squeezed()]
        vars_ = tuple(Var(_INT32, next(self._ids), f"e{n}") for n in range(len(sizes)))
        source, target = _held(src.buffer), _held(dst.buffer)
        at = fold.region_indices(src, src.squeezed(), vars_)
        converted = _converted(Load(source.dtype, source, at), src.dtype, dst.dtype)
        at = fold.region_indices(dst, dst.squeezed(), vars_)
        store = Store(target, at, converted, **stmt.provenance)
        return Parallel(vars_, tuple(sizes), (store,), **stmt.provenance)

    def _computing(self, stmt: Stmt) -> Iterable[Stmt]:
        """Operands in a dtype that holds them exactly; results must have another dtype."""
        before: list[Stmt] = []
        changes: dict[str, object] = {}
        dtype = _HALF if isinstance(stmt, Gemm) else _FLOAT32
        names = {Gemm: ("a", "b"), Reduce: ("src",), Scan: ("src",)}.get(type(stmt), ())
        for name in names:
            region = getattr(stmt, name)
            if region.dtype.is_fp8:
                made = self._temporary(region, dtype)
                alloc = Alloc(made.buffer, **stmt.provenance)
                before += [alloc, self._converting(region, made, stmt)]
                changes[name] = made
        new = dataclasses.replace(stmt, **changes) if changes else stmt  # type: ignore[arg-type]
        return [*before, self._moving(new)]

    def _moving(self, stmt: Stmt) -> Stmt:
        """A statement that moves elements unchanged; refused if it would compute with them."""
        used: tuple[DType, ...]
        if isinstance(stmt, Im2col):
            used = (stmt.image.dtype, stmt.dst.dtype)
            same = used[0] == used[1]
            held: dict[str, object] = {"image": _held(stmt.image), "dst": _region(stmt.dst)}
        else:
            found = {
                f.name: value
                for f in dataclasses.fields(stmt)
                if isinstance(value := getattr(stmt, f.name), Region)
            }
            used = tuple(r.dtype for r in found.values())
            same = isinstance(stmt, Transpose) and len(set(used)) == 1
            held = {name: _region(r) for name, r in found.items()}
        if not any(d.is_fp8 for d in used):
            return stmt
        if not same:
            raise UnsupportedOnTargetError(
                f"`{type(stmt).__name__.lower()}` with a result of 8-bit floats has no exact form "
                "on targets before sm_89",
                location=stmt.loc,
            )
        return dataclasses.replace(stmt, **held)  # type: ignore[arg-type]

    def _temporary(self, region: Region, dtype: DType) -> Region:
        buffer = Buffer(
            next(self._ids), f"{region.buffer.name}_wide", region.extents, dtype, "fragment"
        )
        return Region(buffer, (_ZERO,) * len(region.extents), region.extents)
