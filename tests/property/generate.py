"""Random programs: copies at random places, Parallel bodies with random indices, reductions, products.

Values are small integers held in every dtype, and each store is clamped to +-16, so that every sum and
product is exact in float16 and executors must agree bit for bit, whatever their order of summation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.builder import Builder
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.program import Program, TensorParam
from tileops.ir.stmt import Alloc, Bind, Copy, Fill, For, Gemm, If, Launch, Parallel, Reduce, Store

I32, F16, F32 = DType("int32"), DType("float16"), DType("float32")
DTYPES = tuple(DType(n) for n in ("float32", "float16", "int32", "int8"))
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17)
LIMIT = 16
C = fold.const


@dataclass
class Generator:
    """Draws one program from a seed."""

    seed: int
    rng: random.Random = field(init=False)
    b: Builder = field(init=False)
    tiles: list[Buffer] = field(default_factory=list)
    rows: list[Buffer] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    scalars: list[Var] = field(default_factory=list)  # block and loop variables in scope

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.b = Builder(f"random_{self.seed}")

    def program(self) -> Program:
        rng = self.rng
        for n in range(2):
            shape = (rng.choice((1, 6, 16, 23)), rng.choice((1, 5, 16, 20)))
            self.inputs.append(self.tensor(f"X{n}", shape, rng.choice(DTYPES)))
        grid = rng.randint(1, 3)
        self.m, self.n = rng.choice(EXTENTS), rng.choice(EXTENTS)
        self.out = self.tensor(
            "Y", (grid, rng.choice((1, 9, 18)), rng.choice((4, 17, 20))), rng.choice(DTYPES)
        )
        block = self.b.new_var("bx", I32)
        self.scalars.append(block)
        with self.b.body() as body:
            self.allocate()
            for _ in range(rng.randint(2, 4)):
                self.statement(depth=0)
            self.write_out(rng.choice(self.tiles))
        self.b.emit_launch(Launch((C(grid),), (block,), rng.choice((32, 128)), tuple(body)))
        return self.b.finish((), returns_tuple=False)

    # -- buffers -------------------------------------------------------------------------------
    def tensor(self, name: str, shape: tuple[int, ...], dtype: DType) -> Buffer:
        buffer = self.b.new_buffer(name, tuple(C(s) for s in shape), dtype, "global")
        self.b.params.append(TensorParam(name, buffer))
        return buffer

    def allocate(self) -> None:
        for n in range(2):
            self.tiles.append(self.tile(f"t{n}", (self.m, self.n), self.rng.choice(DTYPES)))
        self.rows.append(self.tile("r", (self.m,), self.rng.choice(DTYPES)))
        self.columns = self.tile("c", (self.n,), self.rng.choice(DTYPES))
        self.acc = self.tile("acc", (self.m, self.n), F32)
        self.tiles.append(self.acc)

    def tile(self, name: str, shape: tuple[int, ...], dtype: DType) -> Buffer:
        scope = self.rng.choice(("shared", "fragment"))
        buffer = self.b.new_buffer(name, tuple(C(s) for s in shape), dtype, scope)
        self.b.emit(Alloc(buffer))
        self.b.emit(Fill(whole(buffer), C(self.rng.randint(-3, 3), dtype)))
        return buffer

    # -- statements ----------------------------------------------------------------------------
    def statement(self, depth: int) -> None:
        kinds = [self.copy_in, self.nest, self.nest, self.reduce, self.gemm]
        if depth < 1:
            kinds += [self.loop, self.branch]
        kind = self.rng.choice(kinds)
        if kind in (self.loop, self.branch):
            kind(depth)  # type: ignore[call-arg]
        else:
            kind()  # type: ignore[call-arg]

    def offset(self) -> Expr:
        """A start that may lie before, inside or beyond a tensor."""
        out: Expr = C(self.rng.randint(-4, 12))
        for var in self.scalars:
            out = fold.add(out, fold.mul(var, C(self.rng.choice((-2, 0, 1, 3, 5)))))
        return out

    def copy_in(self) -> None:
        tile, source = self.rng.choice(self.tiles), self.rng.choice(self.inputs)
        if self.rng.random() < 0.3:
            row = self.columns
            region = Region(source, (self.offset(), self.offset()), (C(1), row.shape[0]))
            self.b.emit(Copy(region, whole(row)))
            return
        self.b.emit(Copy(Region(source, (self.offset(), self.offset()), tile.shape), whole(tile)))

    def write_out(self, tile: Buffer) -> None:
        starts = (self.scalars[0], C(self.rng.randint(-2, 3)), C(self.rng.randint(-2, 3)))
        self.b.emit(Copy(whole(tile), Region(self.out, starts, (C(1), *tile.shape))))

    def loop(self, depth: int) -> None:
        var = self.b.new_var("k", I32)
        kind = self.rng.choice(("serial", "pipelined", "unroll"))
        with self.b.body() as body:
            self.scalars.append(var)
            for _ in range(self.rng.randint(1, 2)):
                self.statement(depth + 1)
            self.scalars.pop()
        start, stop = C(self.rng.randint(0, 1)), C(self.rng.randint(0, 3))
        stages = 2 if kind == "pipelined" else 0
        self.b.emit(For(kind, var, start, stop, tuple(body), stages))

    def branch(self, depth: int) -> None:
        bodies = []
        for _ in range(2):
            with self.b.body() as body:
                self.statement(depth + 1)
            bodies.append(tuple(body))
        cond = fold.binary("lt", self.scalars[0], C(self.rng.randint(0, 2)))
        if not isinstance(cond, type(C(True))):
            self.b.emit(If(cond, *bodies))

    def reduce(self) -> None:
        dim = self.rng.randint(0, 1)
        target = self.columns if dim == 0 else self.rows[0]
        kind = self.rng.choice(("sum", "max", "min", "absmax", "abssum"))
        clear = self.rng.random() < 0.7 or kind == "abssum"
        self.b.emit(Reduce(kind, whole(self.rng.choice(self.tiles)), whole(target), dim, clear))
        i = self.b.new_var("i", I32)
        store = Store(target, (i,), clamp(Load(target.dtype, target, (i,)), target.dtype))
        self.b.emit(Parallel((i,), target.shape, (store,)))

    def gemm(self) -> None:
        """``acc (+)= a @ b`` with fresh operands, then clamped."""
        k = self.rng.choice((1, 3, 8, 16, 17))
        ta, tb = self.rng.random() < 0.5, self.rng.random() < 0.5
        a = self.operand("a", (k, self.m) if ta else (self.m, k))
        b = self.operand("b", (self.n, k) if tb else (k, self.n))
        self.b.emit(Gemm(whole(a), whole(b), whole(self.acc), ta, tb, C(self.rng.random() < 0.5)))
        i, j = self.b.new_var("i", I32), self.b.new_var("j", I32)
        store = Store(self.acc, (i, j), clamp(Load(F32, self.acc, (i, j)), F32))
        self.b.emit(Parallel((i, j), self.acc.shape, (store,)))

    def operand(self, name: str, shape: tuple[int, int]) -> Buffer:
        tile = self.tile(name, shape, F16)
        source = self.rng.choice(self.inputs)
        self.b.emit(Copy(Region(source, (self.offset(), self.offset()), tile.shape), whole(tile)))
        return tile

    def nest(self) -> None:
        tile = self.rng.choice(self.tiles)
        i, j = self.b.new_var("i", I32), self.b.new_var("j", I32)
        with self.b.body() as body:
            if self.rng.random() < 0.4:
                bound = self.b.new_var("v", tile.dtype)
                self.b.emit(Bind(bound, clamp(self.expression(i, j, 2), tile.dtype)))
                self.b.emit(Store(tile, (i, j), bound))
            else:
                self.b.emit(Store(tile, (i, j), clamp(self.expression(i, j, 3), tile.dtype)))
        inner = tuple(body)
        if self.rng.random() < 0.4:
            other = Store(tile, (i, j), clamp(self.expression(i, j, 1), tile.dtype))
            inner = (If(self.condition(i, j), inner, (other,) if self.rng.random() < 0.5 else ()),)
        self.b.emit(Parallel((i, j), tile.shape, inner))

    # -- expressions ---------------------------------------------------------------------------
    def condition(self, i: Var, j: Var) -> Expr:
        op = self.rng.choice(("lt", "ge", "eq", "ne"))
        one = fold.binary(op, self.index(i), C(self.rng.randint(0, 6)))
        two = fold.binary("lt", fold.add(i, j), C(self.rng.randint(1, 20)))
        return fold.binary(self.rng.choice(("land", "lor")), one, two)

    def index(self, var: Var) -> Expr:
        """A random index of a global tensor: affine, divided or a remainder."""
        form = self.rng.randint(0, 3)
        if form == 0:
            return fold.add(fold.mul(var, C(self.rng.choice((1, 2, -1)))), self.offset())
        if form == 1:
            return fold.binary("floordiv", fold.add(var, self.offset()), C(self.rng.randint(1, 4)))
        if form == 2:
            return fold.binary("floormod", fold.add(var, self.offset()), C(self.rng.randint(1, 7)))
        return fold.add(var, C(self.rng.randint(-2, 2)))

    def expression(self, i: Var, j: Var, depth: int) -> Expr:
        if depth == 0:
            return self.leaf(i, j)
        form = self.rng.randint(0, 5)
        a, b = self.expression(i, j, depth - 1), self.expression(i, j, depth - 1)
        if form <= 2:
            return fold.binary(self.rng.choice(("add", "sub", "min", "max")), a, b)
        if form == 3:
            dtype = self.rng.choice((F32, F16, I32))
            return fold.mul(clamp(a, dtype), clamp(b, dtype))
        if form == 4:
            return fold.select(self.condition(i, j), a, b)
        return fold.cast(clamp(a, F32), self.rng.choice(DTYPES))

    def leaf(self, i: Var, j: Var) -> Expr:
        form = self.rng.randint(0, 6)
        tensor, dtype = self.rng.choice(self.inputs), self.rng.choice((F32, I32))
        if form == 0:
            return C(self.rng.randint(-5, 5), dtype)
        if form == 1:
            return fold.cast(self.rng.choice((i, j, *self.scalars)), dtype)
        if form == 2:
            return Load(self.rows[0].dtype, self.rows[0], (i,))
        if form == 3:
            return Load(self.columns.dtype, self.columns, (j,))
        if form == 4:
            row, column = self.rng.choice(((i, j), (j, i), (i, i)))
            return Load(tensor.dtype, tensor, (self.index(row), self.index(column)))
        tile = self.rng.choice(self.tiles)
        return Load(tile.dtype, tile, (i, j))


def whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(C(0) for _ in buffer.shape), buffer.shape)


def clamp(value: Expr, dtype: DType) -> Expr:
    wide = value if value.dtype.bits >= 16 else fold.cast(value, I32)
    low, high = C(-LIMIT, wide.dtype), C(LIMIT, wide.dtype)
    return fold.cast(fold.binary("max", fold.binary("min", wide, high), low), dtype)
