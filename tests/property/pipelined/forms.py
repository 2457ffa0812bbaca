"""Random pipelined programs: loops of copies that TMA can do, tiles of 64 to 256, products, masks.

Inputs are integers of -2 to 2, and what a product takes from a tile is clamped to +-16. So all sums
are integers below 2^24, exact in float32, and what becomes a narrower float is clamped first: every
executor and every schedule must agree bit for bit, whatever its order of summation.
"""

from __future__ import annotations

import math

from tests.property.pipelined.epilogues import Epilogues
from tests.property.pipelined.tensors import (
    BFLOAT16,
    FALSE,
    FLOAT8,
    MOST_TRIPS,
    TRUE,
    ZERO,
    C,
    clamped,
    element,
    number,
    scaled,
    whole,
)
from tileops.dtypes import FLOAT16, INT32
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Var
from tileops.ir.program import Program
from tileops.ir.stmt import Bind, Fill, For, Gemm, Launch, Reduce
from tileops.pass_configs import options_of

LIMIT = 16
TILES = (
    (64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 256), (256, 64), (256, 128),
)  # fmt: skip


class Pipelined(Epilogues):
    """Draws one program from a seed."""

    def program(self) -> Program:
        rng = self.rng
        self.half = self.factor = rng.choice((FLOAT16, FLOAT16, BFLOAT16))
        self.m, self.n = rng.choice(TILES)
        self.k = rng.choice((16, 32, 64, 64, 128))
        self.blocks = (rng.randint(1, 3), rng.randint(2 if self.m == 64 else 1, 3))
        self.batches = tuple(rng.randint(1, 2) for _ in range(rng.choice((0, 0, 0, 1, 2))))
        counts = (*self.blocks, math.prod(self.batches))[: 3 if self.batches else 2]
        names = ("bx", "by", "bz")[: len(counts)]
        blocks = tuple(self.b.new_var(name, INT32) for name in names)
        self.column, self.row, *batch = blocks
        self.batch = tuple(batch)
        if len(self.batches) == 2:
            heads = C(self.batches[1])
            ops = ("floordiv", "floormod")
            self.batch = tuple(fold.binary(op, batch[0], heads) for op in ops)
        form = rng.choice(
            (self.product, self.product, self.product, self.sums, self.chain, self.chain,
             self.chain, self.nested, None)
        )  # fmt: skip
        with self.b.body() as body:
            if form is None:
                blocks, counts = self.tiles(blocks, counts)
            else:
                form()
        if self.chance(0.5):
            self.b.options.update(options_of({"tileops.schedule": self.choices()}))
        attrs = (("swizzle", rng.choice(("2:row", "3:column"))),) if self.chance(0.15) else ()
        grid = tuple(C(count) for count in counts)
        self.b.emit_launch(Launch(grid, blocks, rng.choice((128, 256, 384)), tuple(body), attrs))
        return self.b.finish((), returns_tuple=False)

    def choices(self) -> dict[str, bool | int]:
        """Choices for the schedule that most launches can follow."""
        every: dict[str, tuple[bool | int, ...]] = {"groups": (1,), "depth": (2, 2, 3)}
        names = ("persistent", "overlap", "segments", "longest_first", "staged")
        every |= dict.fromkeys(names, (True, False))
        return {name: self.rng.choice(some) for name, some in every.items() if self.chance(0.3)}

    # -- products --------------------------------------------------------------------------------
    def product(self) -> None:
        """A loop of products, perhaps two such loops on one accumulator."""
        acc = self.accumulator("acc")
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            self.products([acc])
        self.epilogue(acc)

    def sums(self) -> None:
        """Two accumulators of one loop, added in the end."""
        self.n = min(self.n, 128)
        one, two = self.accumulator("one"), self.accumulator("two")
        self.products([one, two])
        self.each(one, lambda i, j: fold.add(element(one, i, j), element(two, i, j)))
        self.epilogue(one)

    def products(self, accs: list[Buffer]) -> None:
        """A loop that adds products to ``accs``, which have one second operand or each its own."""
        row, column = self.place()
        count = self.rng.choice((1, len(accs)))
        ta, *tbs = (self.chance(0.3) for _ in range(1 + count))
        if self.k >= 32 and self.chance(0.15):
            # Products of 8 bits have rows along the sum.
            self.factor, ta, tbs = FLOAT8, False, [True] * count
        first, second = (self.m, self.k), (self.k, self.n)
        a = self.operand("A", first, (self.blocks[1], MOST_TRIPS), ta)
        a_s = self.slot(a, first, ta)
        bs = [self.operand("B", second, (MOST_TRIPS, self.blocks[0]), tb) for tb in tbs]
        b_s = [self.slot(b, second, tb) for b, tb in zip(bs, tbs, strict=True)]
        part = self.tile("part", (self.m, self.n)) if self.chance(0.2) else None
        trips = fold.ceildiv(a.rows if ta else a.columns, C(self.k))
        with self.loop("k", trips) as k, self.at_times(0.1, k):
            inner = scaled(k, self.k)
            self.fetch(a, a_s, row, inner, ta)
            for b, slot, tb in zip(bs, b_s, tbs, strict=True):
                self.fetch(b, slot, inner, column, tb)
            with self.at_times(0.1, k):
                for n, acc in enumerate(accs):
                    own = n % count
                    self.multiply(a_s, b_s[own], acc, ta, tbs[own], part if n == 0 else None)
        self.factor = self.half

    def multiply(
        self, a: Buffer, b: Buffer, acc: Buffer, ta: bool, tb: bool, part: Buffer | None = None
    ) -> None:
        """``acc += a @ b``, or by way of ``part``, which is scaled."""
        if part is None:
            self.b.emit(Gemm(whole(a), whole(b), whole(acc), ta, tb, FALSE))
            return
        self.b.emit(Gemm(whole(a), whole(b), whole(part), ta, tb, TRUE))
        scale = number(self.rng.choice((-1, 2)))
        self.each(
            acc, lambda i, j: fold.add(element(acc, i, j), fold.mul(element(part, i, j), scale))
        )

    def nested(self) -> None:
        """A tile of an outer loop is read by all products of the inner one."""
        acc = self.accumulator("acc")
        (row, column), first, second = self.place(), (self.m, self.k), (self.k, self.n)
        a = self.operand("A", first, (self.blocks[1], MOST_TRIPS))
        b = self.operand("B", second, (2 * MOST_TRIPS, self.blocks[0]))
        a_s, b_s = self.slot(a, first), self.slot(b, second)
        with self.loop("u", fold.ceildiv(a.columns, C(self.k)), "serial") as outer:
            self.fetch(a, a_s, row, scaled(outer, self.k))
            with self.loop("k", C(2)) as inner:
                self.fetch(b, b_s, scaled(fold.add(outer, inner), self.k), column)
                self.multiply(a_s, b_s, acc, False, False)
        self.epilogue(acc)

    def tiles(
        self, blocks: tuple[Var, ...], counts: tuple[int, ...]
    ) -> tuple[tuple[Var], tuple[int]]:
        """A few blocks take all tiles in turn, as ``T.Persistent`` does; these blocks."""
        worker, workers = self.b.new_var("worker", INT32), self.rng.randint(1, 3)
        turn, tile = self.b.new_var("turn", INT32), self.b.new_var("tile", INT32)
        waves = fold.ceildiv(fold.sub(C(math.prod(counts)), worker), C(workers))
        acc = self.tile("acc", (self.m, self.n))
        with self.b.body() as body:
            self.b.emit(Bind(tile, fold.add(worker, scaled(turn, workers))))
            rest: Expr = tile
            for var, count in zip(blocks, counts, strict=True):
                self.b.emit(Bind(var, fold.binary("floormod", rest, C(count))))
                rest = fold.binary("floordiv", rest, C(count))
            self.b.emit(Fill(whole(acc), number(0)))
            self.products([acc])
            self.epilogue(acc)
        self.b.emit(For("serial", turn, ZERO, waves, tuple(body)))
        return (worker,), (workers,)

    # -- chains ----------------------------------------------------------------------------------
    def chain(self) -> None:
        """Scores of a first product, masked and clamped, are the first operand of a second one."""
        keys, width = min(self.n, 128), self.rng.choice((64, 64, 128))
        self.n = min(self.n, 128) if self.m < 256 else 64
        acc, scores = self.accumulator("acc"), self.tile("scores", (self.m, keys))
        weights = self.tile("weights", (self.m, keys), self.half)
        most = self.tile("most", (self.m,))
        q = self.operand("Q", (self.m, width), (self.blocks[1], 1))
        k = self.operand("K", (keys, width), (MOST_TRIPS, 1))
        v = self.operand("V", (keys, self.n), (MOST_TRIPS, self.blocks[0]))
        q_s, k_s = self.slot(q, (self.m, width)), self.slot(k, (keys, width))
        v_s = self.slot(v, (keys, self.n))
        row, column = self.place()
        self.fetch(q, q_s, row, ZERO)
        self.b.emit(Fill(whole(most), number(-LIMIT)))
        early = self.chance(0.5)
        with self.loop("t", fold.ceildiv(k.rows, C(keys))) as trip:
            first = scaled(trip, keys)
            self.fetch(k, k_s, first, ZERO)
            if early:
                self.fetch(v, v_s, first, column)
            self.score(q_s, k_s, scores, row, first)
            self.weigh(scores, weights, most, acc)
            if not early:
                self.fetch(v, v_s, first, column)
            self.multiply(weights, v_s, acc, False, False)
        self.epilogue(acc)

    def score(self, q: Buffer, k: Buffer, scores: Buffer, row: Expr, first: Expr) -> None:
        """``scores = q @ k^T`` under a mask: before the product, behind it, or none."""
        kind = self.rng.choice(("none", "before", "before", "behind", "behind"))
        shift = C(self.rng.choice((0, 0, 1, -1, 5, -40, 70)))
        window = self.rng.choice((0, 0, 0, 40, 100))
        low = number(self.rng.choice((-math.inf, -3)))

        def visible(i: Var, j: Var) -> Expr:
            distance = fold.sub(fold.add(fold.add(row, i), shift), fold.add(first, j))
            seen = fold.binary("ge", distance, ZERO)
            near = fold.binary("lt", distance, C(window))
            return fold.binary("land", seen, near) if window else seen

        if kind == "before":
            hidden = number(-math.inf)
            self.each(scores, lambda i, j: fold.select(visible(i, j), number(0), hidden))
        clear = FALSE if kind == "before" else TRUE
        self.b.emit(Gemm(whole(q), whole(k), whole(scores), False, True, clear))
        if kind == "behind":
            self.each(scores, lambda i, j: fold.select(visible(i, j), element(scores, i, j), low))

    def weigh(self, scores: Buffer, weights: Buffer, most: Buffer, acc: Buffer) -> None:
        """``weights`` from scores, perhaps less the rows' maxima, which may scale ``acc``."""
        if self.chance(0.4):
            self.b.emit(Reduce("max", whole(scores), whole(most), 1, clear=False))
            self.each(
                scores,
                lambda i, j: fold.sub(element(scores, i, j), clamped(element(most, i), LIMIT)),
            )
        self.each(weights, lambda i, j: clamped(element(scores, i, j), LIMIT, self.half))
        if self.chance(0.4):
            factor = number(self.rng.choice((-1, 2)))

            def rescaled(i: Var, j: Var) -> Expr:
                grows = fold.binary("gt", element(most, i), number(0))
                return fold.mul(element(acc, i, j), fold.select(grows, factor, number(1)))

            self.each(acc, rescaled)
