"""What random pipelined programs do to a result, and how it leaves."""

from __future__ import annotations

from tests.property.pipelined.tensors import (
    BFLOAT16,
    MOST_TRIPS,
    C,
    Matrix,
    Parts,
    clamped,
    element,
    number,
    whole,
)
from tileops.dtypes import FLOAT16, FLOAT32, INT32
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.stmt import Atomic, Copy, Parallel, Reduce, Store

# The integer up to which a narrow dtype has all.
EXACT = {FLOAT16: 2048, BFLOAT16: 256}


class Epilogues(Parts):
    """Draws epilogues; ``out`` is the tensor of the results."""

    out: Matrix

    def output(self) -> Matrix:
        dtype = self.rng.choice((FLOAT32, FLOAT32, self.half, FLOAT16))
        columns, rows = self.blocks
        return self.matrix("Y", self.rows_of(rows, self.m), self.columns_of(columns, self.n), dtype)

    def epilogue(self, acc: Buffer) -> None:
        """Up to three changes of the result, and its way to a new tensor."""
        self.out = self.output()
        changes = [self.relu, self.scale, self.mask, self.numbers, self.bias]
        changes += [self.residual_tile, self.residual_elements, self.row_sums, self.row_sums]
        if self.chance(0.15):
            changes.append(self.column_sums)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3))):
            self.rng.choice(changes)(acc)
        self.leave(acc)

    def relu(self, acc: Buffer) -> None:
        self.each(acc, lambda i, j: fold.binary("max", element(acc, i, j), number(0)))

    def scale(self, acc: Buffer) -> None:
        self.each(acc, lambda i, j: fold.mul(element(acc, i, j), number(-2)))

    def mask(self, acc: Buffer) -> None:
        """Elements above a diagonal become a constant."""
        row, column = self.place()

        def value(i: Var, j: Var) -> Expr:
            diagonal = fold.add(fold.add(row, i), C(3))
            below = fold.binary("le", fold.add(column, j), diagonal)
            return fold.select(below, element(acc, i, j), number(7))

        self.each(acc, value)

    def numbers(self, acc: Buffer) -> None:
        """Adds the distance of each element from the diagonal."""
        row, column = self.place()

        def value(i: Var, j: Var) -> Expr:
            distance = fold.sub(fold.add(row, i), fold.add(column, j))
            return fold.add(element(acc, i, j), fold.cast(distance, FLOAT32))

        self.each(acc, value)

    def bias(self, acc: Buffer) -> None:
        """Adds a row of a tensor, read element by element."""
        _, column = self.place()
        row = self.tensor("bias", (self.out.columns,), self.rng.choice((FLOAT32, FLOAT16)))

        def value(i: Var, j: Var) -> Expr:
            return fold.add(
                element(acc, i, j), fold.cast(element(row, fold.add(column, j)), FLOAT32)
            )

        self.each(acc, value)

    def residual(self) -> Matrix:
        dtype = self.rng.choice((FLOAT32, self.half))
        return self.matrix("X", self.out.rows, self.out.columns, dtype)

    def residual_tile(self, acc: Buffer) -> None:
        """Adds a tile of a tensor, copied into registers."""
        source = self.residual()
        tile = self.tile("more", (self.m, self.n), self.rng.choice((FLOAT32, source.buffer.dtype)))
        self.b.emit(Copy(source.region(*self.place(), self.m, self.n), whole(tile)))

        def value(i: Var, j: Var) -> Expr:
            return fold.add(element(acc, i, j), fold.cast(element(tile, i, j), FLOAT32))

        self.each(acc, value)

    def residual_elements(self, acc: Buffer) -> None:
        """Takes off a tile of a tensor, read element by element."""
        source, (row, column) = self.residual(), self.place()

        def value(i: Var, j: Var) -> Expr:
            other = source.element(fold.add(row, i), fold.add(column, j))
            return fold.sub(element(acc, i, j), fold.cast(other, FLOAT32))

        self.each(acc, value)

    def row_sums(self, acc: Buffer) -> None:
        self.reduced(acc, 1, self.m)

    def column_sums(self, acc: Buffer) -> None:
        self.reduced(acc, 0, self.n)

    def reduced(self, acc: Buffer, dim: int, length: int) -> None:
        """What a reduction gives is taken off the tile, and may be added to a tensor."""
        kind = self.rng.choice(("sum", "max", "min", "absmax"))
        found = self.tile("found", (length,))
        self.each(acc, lambda i, j: clamped(element(acc, i, j), 100))
        self.b.emit(Reduce(kind, whole(acc), whole(found), dim, clear=True))
        self.each(acc, lambda i, j: fold.sub(element(acc, i, j), element(found, (i, j)[1 - dim])))
        if self.chance(0.5):
            total = self.tensor("total", (C((MOST_TRIPS + 1) * length),), FLOAT32)
            i = self.b.new_var("i", INT32)
            place = fold.add(self.place()[1 - dim], i)
            added = Atomic("add", Region(total, (place,), (C(1),)), element(found, i))
            self.b.emit(Parallel((i,), found.shape, (added,)))

    def leave(self, acc: Buffer) -> None:
        """A copy to the tensor, from a tile of its dtype or not, or stores of elements."""
        (row, column), out = self.place(), self.out
        dtype = out.buffer.dtype
        if dtype in EXACT:
            self.each(acc, lambda i, j: clamped(element(acc, i, j), EXACT[dtype]))
        kind = self.rng.choice(("copy", "copy", "copy", "tile", "elements"))
        if kind == "elements":
            i, j = self.b.new_var("i", INT32), self.b.new_var("j", INT32)
            at = out.indices(fold.add(row, i), fold.add(column, j))
            store = Store(out.buffer, at, fold.cast(element(acc, i, j), dtype))
            self.b.emit(Parallel((i, j), acc.shape, (store,)))
            return
        source = acc
        if kind == "tile":
            scope = self.rng.choice(("shared", "fragment"))
            source = self.tile("result", (self.m, self.n), dtype, scope)
            self.b.emit(Copy(whole(acc), whole(source)))
        self.b.emit(Copy(whole(source), out.region(row, column, self.m, self.n)))
