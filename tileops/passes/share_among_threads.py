"""Tile operations and parallel nests of launches of threads, as loops of each thread.

Afterwards such a launch has scalar statements alone, and products by matrix instructions, which the
warps of a block make together. What writes a thread's own buffers, or copies from them, each thread
does whole. All else is the work of the block: the points of a nest, and the lines of a reduction,
are dealt to its threads one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tileops.dtypes import DType
from tileops.ir import fold, walk
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import (
    Alloc,
    ArgReduce,
    Atomic,
    Bind,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Parallel,
    Reduce,
    Scan,
    Threads,
    Transpose,
)
from tileops.passes.context import Context
from tileops.passes.expand_lines import Fresh, expand_lines
from tileops.passes.expand_tile_ops import expand

_OWN = ("local", "var")
_WARP = 32
_FP8 = ("float8_e4m3fn", "float8_e5m2")


def share_among_threads(program: Program, context: Context) -> Program:
    """``program`` whose launches of threads have no parallel nests and no other tile operations."""
    ids = walk.fresh_ids(program)
    matrices = Matrices(context.target.is_gpu, dict(program.options))

    def fresh(name: str, dtype: DType) -> Var:
        return Var(dtype, next(ids), name)

    def rewritten(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Threads):
            return None
        sharing = _Sharing(stmt.var, stmt.count, fresh, matrices)
        return (walk.map_bodies(stmt, sharing.body),)

    return walk.map_launches(program, lambda launch: walk.replace_stmts(launch.body, rewritten))


@dataclass(frozen=True)
class Matrices:
    """Which products are those of matrix instructions on a target.

    CPUs run them too, but for those of float32, which only GPUs round to tfloat32.
    """

    is_gpu: bool
    options: Mapping[str, str]

    def have(self, stmt: Gemm) -> bool:
        """True for a product of constant extents whose dtypes an instruction has."""
        a, b, c = (region.dtype for region in (stmt.a, stmt.b, stmt.c))
        if any(region.static_extents() is None for region in (stmt.a, stmt.b, stmt.c)):
            return False
        if c.is_integer:
            return c == "int32" and a.bits == b.bits == 8
        if c.bits > 32:
            return False
        if a == b == "float32":
            precision = self.options.get("tl.gemm_f32_precision", "tf32").strip("'\"")
            return self.is_gpu and precision == "tf32"
        if a == b == "tfloat32":
            return self.is_gpu
        halves = a == b and a in ("float16", "bfloat16")
        return halves or (a in _FP8 and b in _FP8)


class _Sharing:
    """Rewrites the statements of the threads that differ in ``thread``."""

    def __init__(self, thread: Var, count: int, fresh: Fresh, matrices: Matrices) -> None:
        self._thread, self._count, self._fresh = thread, count, fresh
        self._matrices = matrices

    def body(self, body: Body) -> Body:
        """One statement list."""
        return walk.replace_stmts(body, self._loops)

    def _loops(self, stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case Parallel():
                nest = stmt.flattened()
                return self._dealt(nest, [b for s in walk.walk(nest.body) for b in _written(s)])
            case Copy() | Fill() | Atomic() if not walk.is_element(stmt):
                made = expand(stmt, self._fresh)
            case Gemm() if self._multiplies(stmt):
                return None
            case ArgReduce() | Gemm() | Reduce() | Scan() | Transpose():
                made = expand_lines(stmt, self._fresh)
            case _:
                return None
        if not isinstance(made, Parallel):
            return (made,)
        return self._dealt(made, [region.buffer for region in walk.regions(stmt)])

    def _multiplies(self, stmt: Gemm) -> bool:
        """True for a product that warps make by instructions."""
        own = any(region.buffer.scope in _OWN for region in walk.regions(stmt))
        return not own and self._count >= _WARP and self._matrices.have(stmt)

    def _dealt(self, nest: Parallel, buffers: Sequence[Buffer]) -> tuple[Stmt, ...]:
        """``nest`` in order by each thread where one of ``buffers`` is its own, else dealt out."""
        origin = nest.provenance
        if self._count == 1 or any(b.scope in _OWN for b in buffers):
            body = nest.body
            for var, extent in reversed(list(zip(nest.vars, nest.extents, strict=True))):
                zero = fold.const(0, var.dtype)
                body = (For("serial", var, zero, extent, body, **origin),)
            return body
        dtype = max((v.dtype for v in nest.vars), key=lambda d: d.bits)
        total: Expr = fold.const(1, dtype)
        for extent in nest.extents:
            total = fold.mul(total, fold.cast(extent, dtype))
        count = fold.const(self._count, dtype)
        turn, point = self._fresh("turn", dtype), self._fresh("point", dtype)
        at = fold.add(fold.mul(turn, count), fold.cast(self._thread, dtype))
        body = (*self._coordinates(nest, point), *nest.body)
        known = const_value(total)
        if known is None or known % self._count:
            body = (If(fold.binary("lt", point, total), body, **origin),)
        rounds = fold.ceildiv(total, count)
        each = (Bind(point, at, **origin), *body)
        return (For("serial", turn, fold.const(0, dtype), rounds, each, **origin),)

    def _coordinates(self, nest: Parallel, point: Var) -> Iterator[Bind]:
        """The variables of a nest from the number of a point; the last one runs fastest."""
        rest: Expr = point
        pairs = list(zip(nest.vars, nest.extents, strict=True))
        for number, (var, extent) in reversed(list(enumerate(pairs))):
            own = rest
            if number:
                extent = fold.cast(extent, point.dtype)
                own = fold.binary("floormod", rest, extent)
                rest = fold.binary("floordiv", rest, extent)
            yield Bind(var, fold.cast(own, var.dtype), **nest.provenance)


def _written(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement of a nest writes, those that the nest itself makes aside."""
    if not isinstance(stmt, Alloc):
        yield from walk.written_buffers(stmt)
