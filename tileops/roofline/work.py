"""The operations and the bytes of a program, counted in its IR without running it.

A tile that reaches past the end of a tensor counts as a whole one, as it does for the machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tileops.dtypes import DType
from tileops.errors import ArgumentError
from tileops.ir import fold, operators, walk
from tileops.ir.explicit import (
    AllocBarriers,
    BarrierStep,
    EndCopies,
    EndGemms,
    EndStores,
    GroupCopies,
    NamedBarrier,
    Role,
)
from tileops.ir.expr import Binary, Buffer, Call, Const, Expr, HostAttr, Load, Region, Unary, Var
from tileops.ir.program import Program, const_value
from tileops.ir.stmt import (
    AddressView,
    Alloc,
    Assert,
    Assume,
    Atomic,
    Bind,
    Body,
    Break,
    Check,
    ClusterBarrier,
    Continue,
    Copy,
    Exchange,
    ExternCall,
    Fill,
    For,
    Gemm,
    GridBarrier,
    If,
    Im2col,
    ImportSource,
    Intrinsic,
    Launch,
    LoadMatrix,
    Mma,
    Parallel,
    Print,
    RandomNumber,
    RandomStart,
    Reduction,
    Scan,
    Stmt,
    Store,
    Threads,
    Transpose,
    View,
    While,
)

# A variable that decides what runs is tried at all its values up to this many, else at samples.
_VALUES = 256
# What moves nothing of global memory and does no arithmetic on floats, beside the arithmetic of its
# own expressions.
FREE = (
    AddressView, Alloc, AllocBarriers, Assert, Assume, BarrierStep, Bind, Check, ClusterBarrier,
    EndCopies, EndGemms, EndStores, Exchange, GridBarrier, GroupCopies, ImportSource, LoadMatrix,
    NamedBarrier, Print, RandomNumber, RandomStart, View,
)  # fmt: skip
# Functions that compute nothing: they read bits as another type.
_BIT_CASTS = ("reinterpret", "nibble")


@dataclass(frozen=True)
class Work:
    """What one call does.

    ``products`` are the operations of matrix products by the dtype of their operands, a
    multiplication and an addition each; ``elementwise`` those on single floats, by dtype.
    ``read_bytes`` and ``written_bytes`` are what blocks ask of global memory: what two blocks read
    counts twice. ``tensor_bytes`` is the size of all tensors. ``notes`` say what is an estimate.
    """

    products: Mapping[str, int]
    elementwise: Mapping[str, int]
    read_bytes: int
    written_bytes: int
    tensor_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """All operations."""
        return sum(self.products.values()) + sum(self.elementwise.values())

    @property
    def traffic_bytes(self) -> int:
        """Bytes between global memory, caches included, and the blocks."""
        return self.read_bytes + self.written_bytes


def work_of(program: Program, sizes: Mapping[str, int] | None = None) -> Work:
    """The work of one call; ``sizes`` are the values of run-time sizes and scalars by name.

    ArgumentError for a run-time size without a value.
    """
    known = _known(program, sizes or {})
    counter = _Counter()
    for launch in program.launches:
        counter.launch(launch, known)
    tensor_bytes = sum(_buffer_bytes(t.buffer, known) for t in program.tensors() if not t.raw)
    if program.externs:
        counter.notes["foreign kernels are not counted"] = None
    return Work(
        {name: round(n) for name, n in sorted(counter.products.items())},
        {name: round(n) for name, n in sorted(counter.elementwise.items())},
        round(counter.read),
        round(counter.written),
        tensor_bytes,
        tuple(counter.notes),
    )


def _known(program: Program, sizes: Mapping[str, int]) -> dict[int, Expr]:
    known: dict[int, Expr] = {}
    for size in program.sizes:
        if size.var.name not in sizes:
            raise ArgumentError(
                f"{program.name}: the run-time size '{size.var.name}' has no value; give "
                f"{size.var.name}=..."
            )
        known[size.var.id] = fold.const(sizes[size.var.name], size.var.dtype)
    for scalar in program.scalars():
        if scalar.name in sizes:
            known[scalar.var.id] = fold.const(sizes[scalar.name], scalar.var.dtype)
    return known


def _buffer_bytes(buffer: Buffer, known: Mapping[int, Expr]) -> int:
    extents = [const_value(fold.substitute(extent, known)) for extent in buffer.shape]
    return math.prod(e for e in extents if e is not None) * buffer.dtype.bits // 8


@dataclass
class _Counter:
    """Sums over statements; ``times`` is how often one runs, ``points`` its parallel nest."""

    products: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    elementwise: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    read: float = 0
    written: float = 0
    notes: dict[str, None] = field(default_factory=dict)

    def launch(self, launch: Launch, known: Mapping[int, Expr]) -> None:
        """All blocks of one launch."""
        pairs = list(zip(launch.block_vars, launch.grid, strict=True))
        self._box(pairs, launch.body, dict(known), 1.0)

    def _box(
        self, pairs: Sequence[tuple[Var, Expr]], body: Body, known: dict[int, Expr], times: float
    ) -> None:
        if not pairs:
            self.body(body, known, times, {})
            return
        (var, extent), *rest = pairs
        for inner, share in self._values(var, fold.const(0), extent, body, known):
            self._box(rest, body, inner, times * share)

    def _values(
        self, var: Var, start: Expr, stop: Expr, body: Body, known: dict[int, Expr]
    ) -> Iterator[tuple[dict[int, Expr], float]]:
        """What is known in the iterations that differ, and how many each stands for."""
        first, last = self._number(start, known, 0), self._number(stop, known, 1)
        count = max(0, last - first)
        if var.id not in _deciding(body):
            yield known, count
            return
        step = max(1, -(-count // _VALUES))
        if step > 1:
            self.notes[f"'{var.name}' is sampled"] = None
        tried = range(first, last, step)
        for value in tried:
            yield {**known, var.id: fold.const(value, var.dtype)}, count / len(tried)

    def _number(self, expr: Expr, known: Mapping[int, Expr], otherwise: int) -> int:
        found = const_value(fold.substitute(expr, known))
        if found is None:
            name = "a fact of the device" if _has(expr, HostAttr) else "run-time data"
            self.notes[f"a count that {name} decides is taken as {otherwise}"] = None
            return otherwise
        return found

    def body(
        self, body: Body, known: dict[int, Expr], times: float, points: Mapping[int, int]
    ) -> None:
        """The statements of one list."""
        known = dict(known)
        for stmt in body:
            if isinstance(stmt, Bind):
                value = fold.substitute(stmt.value, known)
                if isinstance(value, Const):
                    known[stmt.var.id] = value
            self._statement(stmt, known, times, points)

    def _statement(
        self, stmt: Stmt, known: dict[int, Expr], times: float, points: Mapping[int, int]
    ) -> None:
        self._expressions(stmt, times, points)
        match stmt:
            case For(var=var, start=start, stop=stop, body=body):
                for inner, share in self._values(var, start, stop, body, known):
                    self.body(body, inner, times * share, points)
            case Threads(var=var, count=count, body=body):
                self.body(body, known, times, {**points, var.id: count})
            case Parallel():
                nest = zip(stmt.vars, stmt.extents, strict=True)
                inside = {var.id: self._number(extent, known, 1) for var, extent in nest}
                self.body(stmt.body, known, times, {**points, **inside})
            case Role(body=body):
                self.body(body, known, times, points)
            case If(cond=cond, then=then, orelse=orelse):
                self._condition(fold.substitute(cond, known), then, orelse, known, times, points)
            case While(body=body):
                self.notes["a `while` loop counts once"] = None
                self.body(body, known, times, points)
            case Break() | Continue():
                self.notes["loops that are left early count in full"] = None
            case _:
                self._operation(stmt, known, times * math.prod(points.values()), times, points)

    def _condition(
        self, cond: Expr, then: Body, orelse: Body, known: dict[int, Expr], times: float,
        points: Mapping[int, int],
    ) -> None:  # fmt: skip
        if not isinstance(cond, Const):
            if not points:
                self.notes["a condition on run-time values counts as true and as false"] = None
            self.body(then, known, times, points)
            self.body(orelse, known, times, points)
        else:
            self.body(then if cond.value else orelse, known, times, points)

    def _operation(
        self, stmt: Stmt, known: Mapping[int, Expr], runs: float, times: float,
        points: Mapping[int, int],
    ) -> None:  # fmt: skip
        """``runs`` counts points of a parallel nest, of which ``times`` tells the rest."""
        match stmt:
            case Gemm():
                m, n = (self._number(e, known, 1) for e in stmt.c.extents[-2:])
                k = self._number(stmt.a.extents[-2 if stmt.transpose_a else -1], known, 1)
                self.products[str(stmt.a.dtype)] += 2 * m * n * k * runs
            case Mma(a=a):  # one for the 32 lanes of a warp
                k = 256 // a.dtype.bits
                self.products[str(a.dtype)] += 2 * 16 * 8 * k * runs / 32
            case Copy():
                count = runs * self._elements(stmt.lead, known)
                self._move(stmt.src.buffer, stmt.dst.buffer, count)
            case Transpose():
                self._move(stmt.src.buffer, stmt.dst.buffer, runs * self._elements(stmt.src, known))
            case Im2col(image=image, dst=dst):
                self._move(image, dst.buffer, runs * self._elements(dst, known))
            case Fill(dst=dst):
                self._move(None, dst.buffer, runs * self._elements(dst, known))
            case Reduction(src=src) | Scan(src=src):
                self._compute(src.buffer.dtype, runs * self._elements(src, known))
            case Atomic(dst=dst):
                count = runs * self._elements(dst, known)
                self._move(dst.buffer, dst.buffer, count)
                self._compute(dst.dtype, count)
            case Store(buffer=buffer, indices=indices):
                self._move(None, buffer, times * _different(indices, points))
            case ExternCall() | Intrinsic():
                self.notes["what functions in CUDA C++ do is not counted"] = None
            case _ if not isinstance(stmt, FREE):
                raise TypeError(f"no count of the statement {type(stmt).__name__}")

    def _expressions(self, stmt: Stmt, times: float, points: Mapping[int, int]) -> None:
        """The arithmetic of a statement's own expressions and the elements that they read."""
        runs = times * math.prod(points.values())
        for expr in walk.exprs(stmt):
            for part in walk.walk_expr(expr):
                if isinstance(part, Load):
                    self._move(part.buffer, None, times * _different(part.indices, points))
                elif _is_operation(part):
                    self._compute(part.dtype, runs)

    def _compute(self, dtype: DType, count: float) -> None:
        if dtype.is_float:
            self.elementwise[str(dtype)] += count

    def _move(self, src: Buffer | None, dst: Buffer | None, count: float) -> None:
        if src is not None and not src.is_on_chip:
            self.read += count * src.dtype.bits / 8
        if dst is not None and not dst.is_on_chip:
            self.written += count * dst.dtype.bits / 8

    def _elements(self, region: Region, known: Mapping[int, Expr]) -> int:
        return math.prod(self._number(extent, known, 1) for extent in region.extents)


def _is_operation(expr: Expr) -> bool:
    """True for arithmetic; conversions, selections and comparisons are free."""
    match expr:
        case Unary():
            return True
        case Binary(op=op):
            return op in operators.ARITHMETIC
        case Call(name=name):
            return name not in _BIT_CASTS
    return False


def _different(indices: Sequence[Expr], points: Mapping[int, int]) -> int:
    """How many elements the points of a parallel nest choose: those of the variables they use."""
    parts = [part for index in indices for part in walk.walk_expr(index)]
    if any(isinstance(part, Load) for part in parts):
        return math.prod(points.values())
    used = {part.id for part in parts if isinstance(part, Var)}
    return math.prod(count for var, count in points.items() if var in used)


def _has(expr: Expr, kind: type[Expr]) -> bool:
    return any(isinstance(part, kind) for part in walk.walk_expr(expr))


def _deciding(body: Body) -> set[int]:
    """The variables that decide how often statements of ``body`` run, and on how much."""
    exprs: list[Expr] = []
    binds: list[Bind] = []
    for stmt in walk.walk(body):
        match stmt:
            case For(start=start, stop=stop):
                exprs += (start, stop)
            case Parallel(extents=extents):
                exprs += extents
            case If(cond=cond):
                exprs.append(cond)
            case Bind():
                binds.append(stmt)
            case _:
                exprs += [e for region in walk.regions(stmt) for e in region.extents]
    found = _variables(exprs)
    for bind in reversed(binds):
        if bind.var.id in found:
            found |= _variables([bind.value])
    return found


def _variables(exprs: Sequence[Expr]) -> set[int]:
    return {p.id for expr in exprs for p in walk.walk_expr(expr) if isinstance(p, Var)}
