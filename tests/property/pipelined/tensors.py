"""The parts of random pipelined programs: tensors of many sizes, tiles, copies and loops."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tileops.dtypes import BOOL, FLOAT32, INT32, DType
from tileops.ir import fold
from tileops.ir.builder import Builder
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.program import ScalarParam, Size, TensorParam
from tileops.ir.stmt import Alloc, Copy, Fill, For, If, Parallel, Store

BFLOAT16, FLOAT8 = DType("bfloat16"), DType("float8_e4m3fn")
MOST_TRIPS = 3
C = fold.const
ZERO = C(0)
FALSE, TRUE = C(False, BOOL), C(True, BOOL)


@dataclass(frozen=True)
class Matrix:
    """A tensor of matrices that tiles cover.

    Its dimensions are (rows, columns), (batch, rows, columns) or (batch, rows, head, columns).
    """

    buffer: Buffer
    batch: tuple[Expr, ...]

    @property
    def rows(self) -> Expr:
        return self.buffer.shape[min(1, len(self.batch))]

    @property
    def columns(self) -> Expr:
        return self.buffer.shape[-1]

    def region(self, row: Expr, column: Expr, rows: int, columns: int) -> Region:
        starts, extents = (row, column), (C(rows), C(columns))
        if self.batch:
            batch, *head = self.batch
            starts = (batch, row, *head, column)
            extents = (C(1), extents[0], *(C(1) for _ in head), extents[1])
        return Region(self.buffer, starts, extents)

    def indices(self, row: Expr, column: Expr) -> tuple[Expr, ...]:
        return self.region(row, column, 1, 1).starts

    def element(self, row: Expr, column: Expr) -> Load:
        return Load(self.buffer.dtype, self.buffer, self.indices(row, column))


@dataclass
class Parts:
    """Draws parts of one program from a seed.

    ``sizes`` and ``scalars`` are the numbers with which the program is called. Tiles are of ``m``
    rows and ``n`` columns, a grid of ``blocks`` columns and rows of them in each of ``batches``.
    Operands of products are of ``factor``, what else is narrow of ``half``.
    """

    seed: int
    sizes: dict[int, int] = field(default_factory=dict)
    scalars: dict[str, int] = field(default_factory=dict)
    rng: random.Random = field(init=False)
    b: Builder = field(init=False)
    half: DType = field(init=False)
    factor: DType = field(init=False)
    m: int = field(init=False)
    n: int = field(init=False)
    blocks: tuple[int, int] = field(init=False)
    batches: tuple[int, ...] = field(init=False)
    row: Var = field(init=False)
    column: Var = field(init=False)
    batch: tuple[Expr, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.b = Builder(f"pipelined_{self.seed}")

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def place(self) -> tuple[Expr, Expr]:
        """The first row and column of the block's tile."""
        return scaled(self.row, self.m), scaled(self.column, self.n)

    # -- tensors ---------------------------------------------------------------------------------
    def tensor(self, name: str, shape: tuple[Expr, ...], dtype: DType) -> Buffer:
        """A new tensor; a number follows a name that is taken."""
        taken = {p.name for p in self.b.params}
        if name in taken:
            name = next(f"{name}{n}" for n in range(2, 9) if f"{name}{n}" not in taken)
        buffer = self.b.new_buffer(name, shape, dtype, "global")
        self.b.params.append(TensorParam(name, buffer))
        return buffer

    def matrix(self, name: str, rows: Expr, columns: Expr, dtype: DType) -> Matrix:
        shape: tuple[Expr, ...] = (rows, columns)
        if self.batches:
            batches, *heads = (C(extent) for extent in self.batches)
            shape = (batches, rows, *heads, columns)
        return Matrix(self.tensor(name, shape, dtype), self.batch)

    def rows_of(self, tiles: int, extent: int) -> Expr:
        """Rows that ``tiles`` tiles cover; a part of a tile may be missing. Some are known late."""
        size = tiles * extent - (0 if self.chance(0.4) else self.rng.randrange(extent))
        if not self.chance(0.3):
            return C(size)
        var = self.b.new_var(f"rows{len(self.sizes)}", INT32)
        self.b.sizes.append(Size(var, "dynamic"))
        self.sizes[var.id] = size
        return var

    def columns_of(self, tiles: int, extent: int) -> Expr:
        """Columns of any number of 16 bytes; seldom such that rows are not aligned."""
        unit = 16 // self.factor.bytes
        missing = 0 if self.chance(0.4) else unit * self.rng.randrange(extent // unit)
        return C(tiles * extent - missing - (1 if self.chance(0.01) else 0))

    def operand(
        self, name: str, shape: tuple[int, int], tiles: tuple[int, int], flipped: bool = False
    ) -> Matrix:
        """A tensor of ``tiles`` tiles of ``shape``; transposed if ``flipped``."""
        (down, rows), (across, columns) = zip(
            turned(tiles, flipped), turned(shape, flipped), strict=True
        )
        shape_of = self.rows_of(down, rows), self.columns_of(across, columns)
        return self.matrix(name, *shape_of, self.factor)

    def small(self, name: str, index: Expr) -> Expr:
        """An element of a tensor of a few numbers of trips."""
        found = [p.buffer for p in self.b.params if isinstance(p, TensorParam) and p.name == name]
        buffer = found[0] if found else self.tensor(name, (C(8),), INT32)
        return Load(INT32, buffer, (index,))

    # -- tiles and copies ------------------------------------------------------------------------
    def tile(
        self, name: str, shape: tuple[int, ...], dtype: DType = FLOAT32, scope: str = "fragment"
    ) -> Buffer:
        buffer = self.b.new_buffer(name, tuple(C(s) for s in shape), dtype, scope)
        self.b.emit(Alloc(buffer))
        return buffer

    def accumulator(self, name: str) -> Buffer:
        acc = self.tile(name, (self.m, self.n))
        self.b.emit(Fill(whole(acc), number(self.rng.choice((0, 0, 0, 1)))))
        return acc

    def slot(self, source: Matrix, shape: tuple[int, int], flipped: bool = False) -> Buffer:
        """A shared tile for tiles of ``source``."""
        name = f"{source.buffer.name}_s"
        return self.tile(name, turned(shape, flipped), self.factor, "shared")

    def fetch(
        self, source: Matrix, tile: Buffer, row: Expr, column: Expr, flipped: bool = False
    ) -> None:
        """A copy; at times it begins before the tensor or ends behind it.

        Seldom it begins inside 16 bytes, where TMA cannot.
        """
        row, column = turned((row, column), flipped)
        row = fold.add(row, C(self.rng.choice((0, 0, 0, 0, 1, -1, 8, -24))))
        unit = 16 // tile.dtype.bytes
        shift = 1 if self.chance(0.01) else self.rng.choice((0, 0, 0, unit, -3 * unit))
        column = fold.add(column, C(shift))
        rows, columns = tile.static_shape() or ()
        self.b.emit(Copy(source.region(row, column, rows, columns), whole(tile)))

    def each(self, tile: Buffer, value: Callable[[Var, Var], Expr]) -> None:
        """``tile[i, j] = value(i, j)`` in a parallel nest."""
        i, j = self.b.new_var("i", INT32), self.b.new_var("j", INT32)
        self.b.emit(Parallel((i, j), tile.shape, (Store(tile, (i, j), value(i, j)),)))

    # -- loops and conditions --------------------------------------------------------------------
    def bounds(self, whole_loop: Expr) -> tuple[Expr, Expr]:
        """Where a loop begins and ends: 0 to 3 trips.

        Known now, from sizes (``whole_loop`` trips), the block, a tensor or an argument.
        """
        kinds = ("constant", "constant", "sizes", "sizes", "block", "tensor", "scalar")
        kind = self.rng.choice(kinds)
        first = C(self.rng.choice((0, 0, 0, 1)))
        if kind == "constant":
            return first, C(0 if self.chance(0.05) else self.rng.randint(1, MOST_TRIPS))
        if kind == "sizes":
            return ZERO, whole_loop
        if kind == "block":
            stop = fold.add(self.row, C(self.rng.randint(0, 1)))
            return first, fold.binary("min", stop, C(MOST_TRIPS))
        if kind == "tensor":
            return first, self.small("steps", fold.add(self.row, self.column))
        var = self.b.new_var(f"trips{len(self.scalars)}", INT32)
        self.b.params.append(ScalarParam(var.name, var))
        self.scalars[var.name] = self.rng.randint(0, MOST_TRIPS)
        return first, var

    @contextmanager
    def loop(self, name: str, whole_loop: Expr, kind: str = "pipelined") -> Iterator[Var]:
        var = self.b.new_var(name, INT32)
        start, stop = self.bounds(whole_loop)
        with self.b.body() as body:
            yield var
        stages = self.rng.randint(1, 4) if kind == "pipelined" else 0
        self.b.emit(For(kind, var, start, stop, tuple(body), stages))

    @contextmanager
    def at_times(self, probability: float, var: Var) -> Iterator[None]:
        """With this probability statements are under a condition, which a tensor decides."""
        if not self.chance(probability):
            yield
            return
        with self.b.body() as body:
            yield
        cond = fold.binary("eq", self.small("skipped", fold.add(var, self.column)), ZERO)
        self.b.emit(If(cond, tuple(body)))


def turned(pair: tuple[int, int], flipped: bool) -> tuple[int, int]:
    """``pair``, the other way round if ``flipped``."""
    return pair[::-1] if flipped else pair  # type: ignore[return-value]


def scaled(count: Expr, extent: int) -> Expr:
    return fold.mul(count, C(extent))


def number(value: float) -> Expr:
    return C(float(value), FLOAT32)


def whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(ZERO for _ in buffer.shape), buffer.shape)


def element(tile: Buffer, *indices: Expr) -> Load:
    return Load(tile.dtype, tile, indices)


def clamped(value: Expr, limit: int, dtype: DType = FLOAT32) -> Expr:
    """``value``, a float32, between ``-limit`` and ``limit``, as a number of ``dtype``."""
    within = fold.binary("max", fold.binary("min", value, number(limit)), number(-limit))
    return fold.cast(within, dtype)
