"""How the statements of a launch divide into a role that loads and one that computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.program import Program, const_value
from tileops.ir.schedule import (
    PATTERN_ROWS,
    Acquire,
    Advance,
    Await,
    Deposit,
    Descriptor,
    Fetch,
    Issue,
    Publish,
    Release,
    Ring,
    Settle,
)
from tileops.ir.stmt import Alloc, Atomic, Bind, Body, Copy, For, Gemm, If, Launch, Parallel, Stmt
from tileops.ir.walk import (
    exprs,
    read_buffers,
    view_roots,
    walk,
    walk_expr,
    written_buffers,
    written_ids,
)
from tileops.location import Location
from tileops.passes.hopper.boxes import Boxes
from tileops.passes.hopper.defer_products import deferred, lone_products
from tileops.passes.hopper.exchanges import find_exchanged, require_rows
from tileops.passes.hopper.fit_shared import LEAST_DEPTH
from tileops.passes.hopper.groups import LANES, MOST_RESULTS
from tileops.passes.hopper.leaving import Leaving
from tileops.passes.hopper.riders import covers, find_riders, is_read_by_elements, span_of
from tileops.passes.hopper.share_operands import made_operands, require_shareable
from tileops.passes.hopper.unfit import Unfit

# What a product of each dtype is summed in (PTX ISA, wgmma.mma_async).
_SUMS = {
    "float16": "float32", "bfloat16": "float32", "int8": "int32",
    "float8_e4m3fn": "float32", "float8_e5m2": "float32",
}  # fmt: skip
_STEP_BITS = 256  # of a row of an operand that one instruction reads
GROUP_ROWS = 64  # of a wgmma instruction, which four warps run together
_RESULTS = 64
_TRUE = fold.const(True, DType("bool"))


def operands(gemm: Gemm) -> tuple[Buffer, Buffer]:
    """The buffers that a product multiplies."""
    return gemm.a.buffer, gemm.b.buffer


@dataclass
class _Group:
    """Copies of one statement list that are waited for and released together.

    The same statements are the first and the last to read them, or products into one result are.
    """

    first: int
    last: int
    copies: list[Copy]
    ring: Ring

    def start(self, body: Body) -> int:
        """The place in ``body`` from which on all addresses of the copies are known."""
        used = {e for c in self.copies for x in exprs(c) for e in walk_expr(x)}
        binds = (n for n, s in enumerate(body) if isinstance(s, Bind) and s.var in used)
        return max((min(map(body.index, self.copies)), *binds))


class RoleSplit:
    """Both roles of one launch, as they are found."""

    def __init__(self, program: Program, launch: Launch, boxes: Boxes) -> None:
        self.rings: list[Ring] = []
        self._sizes = {size.var.id for size in program.sizes}
        # The rings of loops that are as long in every block, by name.
        self.even: set[str] = set()
        self._launch, self._boxes = launch, boxes
        self._gemms = [s for s in walk(launch.body) if isinstance(s, Gemm)]
        self._written = written_ids(launch.body)
        self._roots = view_roots(launch.body)
        self._leaving = Leaving(launch.body, boxes)
        # The variables whose values the math role alone has.
        self._private: set[int] = set()
        self._find_private()
        self._exchanged = find_exchanged(launch.body)
        self._fed = self._fed_buffers()
        self._filled = self._fed.keys() | self._exchanged
        self._made = {b.id for g in self._gemms for b in made_operands(g, self._filled)}
        # In a loop that multiplies in each iteration: what it adds to memory should not wait.
        self._adds = False
        for gemm in self._gemms:
            self._check_gemm(gemm)
            if gemm.a.buffer.id in self._exchanged:
                require_rows(gemm)
        # Tiles of one shape have one layout, which says how many elements an instruction sums.
        widths = sorted({gemm.a.dtype.bits for gemm in self._gemms})
        if len(widths) > 1:
            words = " and ".join(map(str, widths))
            raise Unfit(f"the products read elements of {words} bits", self._gemms[-1].loc)

    @property
    def rows(self) -> int:
        """The rows of the products: the same of all, or the fewest where one group does them."""
        own = [g for g in self._gemms if g.a.buffer.id not in self._exchanged]
        found = {(g.c.static_extents() or (0,))[-2] for g in own}
        if len(found) != 1 and not self._made:
            raise Unfit("the products differ in rows", self._launch.loc)
        return min(found)

    def warps(self) -> tuple[int, int]:
        """Warps of one group for all rows, and how many of them share rows.

        Each has 16 rows at least, and a thread 64 results at most where there are rows enough.
        """
        most = self.rows // 16
        columns = max((g.c.static_extents() or (0,))[-1] for g in self._gemms)
        wanted = self.rows * columns // (LANES * _RESULTS)
        if most < 4:
            raise Unfit(f"the products have {self.rows} rows, wgmma has 64", self._launch.loc)
        warps = max(4, min(8, most, wanted))
        # Registers hold all results that products add to at once.
        added = {g.c.buffer for g in self._gemms if const_value(g.clear) == 0}
        held = max(self.rows * columns, sum(prod(b.static_shape() or ()) for b in added))
        if warps == 4 and held > MOST_RESULTS * LANES * warps:
            return 8, 2
        return warps, 1

    def roles(self) -> tuple[Body, Body]:
        """The statements of the load role and of the math role."""
        return self._roles(self._launch.body, stages=0)

    def check_rows(self) -> None:
        """Unfit where a product has no more rows than one block.

        It then takes as long as its second operand takes to load, which many small blocks do
        better than one on each multiprocessor: 16 rows times 28672 x 4096 took 108 us in roles on
        an H200 and take 68.
        """
        for gemm in self._gemms:
            copies = (s for s in walk(self._launch.body) if isinstance(s, Copy))
            copy = next((s for s in copies if s.dst.buffer is gemm.a.buffer), None)
            if copy is None or len(copy.src.squeezed()) != 2:
                continue
            dim = copy.src.squeezed()[-1 if gemm.transpose_a else -2]
            rows = const_value(copy.src.buffer.shape[dim])
            if rows is not None and rows <= GROUP_ROWS:
                raise Unfit(f"the product has {rows} rows", gemm.loc)

    # -- what both roles know --------------------------------------------------------------------
    def _find_private(self) -> None:
        for stmt in walk(self._launch.body):
            match stmt:
                case Bind(var=var, value=value) if not self._is_pure(value):
                    self._private.add(var.id)
                case Atomic(result=Var(id=result)):
                    self._private.add(result)

    def _is_pure(self, expr: Expr) -> bool:
        """True if every role can evaluate the expression.

        It reads no tile, no tensor that the launch writes, and nothing that comes from them.
        """
        return not any(
            (isinstance(e, Load) and self._is_private(e.buffer))
            or (isinstance(e, Var) and e.id in self._private)
            for e in walk_expr(expr)
        )

    def _is_private(self, buffer: Buffer) -> bool:
        return buffer.is_on_chip or self._roots.get(buffer.id, buffer).id in self._written

    # -- what may be loaded ----------------------------------------------------------------------
    def _fed_buffers(self) -> dict[int, Descriptor]:
        """The shared operands of products, each with the box of the one copy that fills it."""
        wanted = {b.id: b for g in self._gemms for b in operands(g) if b.scope == "shared"}
        fed: dict[int, Descriptor] = {}
        for buffer in wanted.values():
            if buffer.id in self._exchanged:
                continue
            writers = [s for s in walk(self._launch.body) if buffer in written_buffers(s)]
            readers = [s for s in walk(self._launch.body) if buffer in read_buffers(s)]
            loads = [s for s in writers if isinstance(s, Copy) and not self._in_tile(s)]
            if len(writers) != 1 or not loads:
                if loads and any(g.b.buffer is buffer for g in self._gemms):
                    raise Unfit(
                        f"`{buffer.name}` is not filled by one copy from a tensor", loads[0].loc
                    )
                continue  # the math role makes it
            others = [s for s in readers if not isinstance(s, Gemm)]
            if others and not is_read_by_elements(buffer, self._launch.body):
                raise Unfit(f"`{buffer.name}` is read by more than products", self._loc(others))
            (copy,) = loads
            if copy.src.buffer.id in self._written:
                raise Unfit(f"`{copy.src.buffer.name}` is written in this launch", copy.loc)
            if not all(map(self._is_pure, exprs(copy))):
                raise Unfit("an address of the copy is read from a tile", copy.loc)
            fed[buffer.id] = self._boxes.fetched(copy)
        self._riders = find_riders(self._launch.body, self._boxes, fed, self._is_loadable)
        return fed | self._riders

    def _is_loadable(self, copy: Copy) -> bool:
        """True for a copy whose source and addresses the load role has."""
        return copy.src.buffer.id not in self._written and all(map(self._is_pure, exprs(copy)))

    def check_loads(self) -> None:
        """Unfit where the products of a loop wait for a tile that the math role loads itself.

        Triton copies such tiles ahead. On an H200 a convolution of stride 2 took 145 us in roles
        and takes 54, a scan of Mamba-2 took 1,568 and takes 683.
        """
        factors = {b.id for g in self._gemms for b in operands(g)}
        loops = [s for s in walk(self._launch.body) if isinstance(s, For)]
        for stmt in (s for loop in loops if any(_gemms(loop)) for s in walk(loop.body)):
            if _is_fed_copy(stmt, self._fed) or all(b.is_on_chip for b in read_buffers(stmt)):
                continue
            is_tile = isinstance(stmt, Copy) and len(stmt.dst.squeezed()) > 1
            for buffer in written_buffers(stmt):
                if buffer.is_on_chip and (is_tile or buffer.id in factors):
                    raise Unfit(f"`{buffer.name}` comes from a tensor, and not by TMA", stmt.loc)

    @staticmethod
    def _in_tile(copy: Copy) -> bool:
        return copy.src.buffer.is_on_chip

    def _loc(self, stmts: list[Stmt]) -> Location | None:
        return stmts[0].loc if stmts else self._launch.loc

    def _check_gemm(self, gemm: Gemm) -> None:
        a, b, c = gemm.a, gemm.b, gemm.c
        for operand in made_operands(gemm, self._filled):
            require_shareable(operand, gemm)
        if a.dtype != b.dtype or _SUMS.get(str(a.dtype)) != str(c.dtype):
            raise Unfit(f"a product of {a.dtype} and {b.dtype} into {c.dtype}", gemm.loc)
        if a.dtype.bits == 8:
            for region, in_rows in ((a, not gemm.transpose_a), (b, gemm.transpose_b)):
                if not in_rows:
                    name = region.buffer.name
                    raise Unfit(f"the sum over {a.dtype} runs down columns of `{name}`", gemm.loc)
        are_rows = b.buffer.id in self._fed and _are_rows(gemm)
        whole = a.is_whole() and c.is_whole() and (b.is_whole() or are_rows)
        if not whole or any(len(r.squeezed()) != 2 for r in (a, b, c)):
            raise Unfit("an operand is a part of its buffer", gemm.loc)
        if const_value(gemm.clear) is None:
            raise Unfit("whether the product starts from zero is known at run time only", gemm.loc)
        (k,) = {a.static_extents()[0 if gemm.transpose_a else 1]}  # type: ignore[index]
        if k % (_STEP_BITS // a.dtype.bits):
            raise Unfit(f"the product sums {k} terms", gemm.loc)

    # -- roles -----------------------------------------------------------------------------------
    def _roles(self, body: Body, stages: int) -> tuple[Body, Body]:
        groups = self._groups(body, stages)
        starts = [group.start(body) for group in groups]
        load: list[Stmt] = []
        math: list[Stmt] = []
        for place, stmt in enumerate(body):
            math += [Await(g.ring, **stmt.provenance) for g in groups if g.first == place]
            own = [g for g in groups if stmt in g.copies]
            if isinstance(stmt, Copy) and stmt.dst.buffer.id in self._exchanged:
                math += self._deposit(own[0].ring, stmt)
            elif not _is_fed_copy(stmt, self._fed):
                inner_load, inner_math = self._of(stmt)
                load += inner_load
                math += inner_math
            for group, start in zip(groups, starts, strict=True):
                if start == place and not group.ring.is_exchange:
                    load += self._fetches(group)
            for group in groups:
                if group.last == place:
                    math += [
                        Release(group.ring, 0, _TRUE, **stmt.provenance),
                        Advance(group.ring, **stmt.provenance),
                    ]
        return tuple(load), tuple(math)

    def _groups(self, body: Body, stages: int) -> list[_Group]:
        found: dict[tuple[int, int, bool], _Group] = {}
        riding: list[tuple[Copy, tuple[int, int]]] = []
        starts = self._run_starts(body)
        for place, copy in enumerate(body):
            if not (isinstance(copy, Copy) and copy.dst.buffer.id in self._filled):
                continue
            span = span_of(body, copy.dst.buffer)
            if span is None or span[0] < place:
                raise Unfit(f"`{copy.dst.buffer.name}` is not read where it is loaded", copy.loc)
            if copy.dst.buffer.id in self._riders:
                riding.append((copy, span))
                continue
            first = starts.get(span[0], span[0])
            is_joined = list(starts.values()).count(first) > 1
            name = f"ring{len(self.rings)}"
            exchanged = copy.dst.buffer.id in self._exchanged
            depth = 1 if not stages else LEAST_DEPTH if exchanged else max(LEAST_DEPTH, stages)
            key = (first, len(body) if is_joined else span[1], exchanged)
            if key not in found:
                found[key] = _Group(first, span[1], [], Ring(name, (), (), depth))
                self.rings.append(found[key].ring)
            found[key].copies.append(copy)
            found[key].last = max(found[key].last, span[1])
        for copy, span in riding:
            holds = (g for g in found.values() if covers((g.first, g.last), span))
            next(g for g in holds if g.copies[0].dst.buffer.id in self._fed).copies.append(copy)
        for group in found.values():
            before = self.rings.index(group.ring)
            buffers = tuple(c.dst.buffer for c in group.copies)
            boxes = tuple(self._fed[b.id] for b in buffers if b.id in self._fed)
            group.ring = replace(group.ring, buffers=buffers, descriptors=boxes)
            self.rings[before] = group.ring
        return list(found.values())

    def _run_starts(self, body: Body) -> dict[int, int]:
        """For each product of a list, the first of those that follow each other into one result.

        The operands of all of them are waited for together.
        """
        starts: dict[int, int] = {}
        before: Gemm | None = None
        for place, stmt in enumerate(body):
            if isinstance(stmt, Alloc) or _is_fed_copy(stmt, self._fed):
                continue
            if not isinstance(stmt, Gemm):
                before = None
                continue
            joins = before is not None and before.c == stmt.c and const_value(stmt.clear) == 0
            starts[place] = list(starts.values())[-1] if joins else place
            before = stmt
        return starts

    def _fetches(self, group: _Group) -> Iterator[Stmt]:
        where = group.copies[0].provenance
        yield Acquire(group.ring, **where)
        for copy in group.copies:
            yield Fetch(copy.src, copy.dst, group.ring, **copy.provenance)
        yield Advance(group.ring, **where)

    @staticmethod
    def _deposit(ring: Ring, copy: Copy) -> Iterator[Stmt]:
        yield Acquire(ring, **copy.provenance)
        yield Deposit(copy.src, copy.dst, ring, **copy.provenance)
        yield Publish(ring, **copy.provenance)

    def _of(self, stmt: Stmt) -> tuple[Body, Body]:
        """What a statement becomes in each role."""
        match stmt:
            case Alloc(buffer=buffer) if buffer.id in self._filled:
                return (), ()
            case Gemm():
                issue = Issue(
                    stmt.a, stmt.b, stmt.c, stmt.transpose_a, stmt.transpose_b, stmt.clear,
                    stmt.policy, **stmt.provenance,
                )  # fmt: skip
                return (), (issue, Settle(0, (stmt.c.buffer,), **stmt.provenance))
            case Bind(value=value) if self._is_pure(value):
                return (stmt,), (stmt,)
            case For():
                self._require_pure(stmt, stmt.start, stmt.stop)
                stages = stmt.stages if stmt.kind == "pipelined" else 0
                before, self._adds = self._adds, any(isinstance(s, Gemm) for s in stmt.body)
                load, math = self._roles(stmt.body, max(stages, 1))
                self._adds = before
                loop = replace(stmt, kind="serial", stages=0, body=math)
                after: Body = ()
                if self._is_even(loop):
                    self.even |= {s.ring.name for s in loop.body if isinstance(s, Release)}
                if (products := lone_products(loop)) is not None:
                    loop, after = deferred(loop, products)
                return _loading(replace(loop, body=load), load), (loop, *after)
            case If():
                self._require_pure(stmt, stmt.cond)
                (load, math), (load_else, math_else) = (
                    self._roles(stmt.then, 1),
                    self._roles(stmt.orelse, 1),
                )
                branch = replace(stmt, then=math, orelse=math_else)
                other = replace(stmt, then=load, orelse=load_else)
                return _loading(other, load + load_else), (branch,)
            case Copy(src=src, dst=dst) if src.buffer.is_on_chip and not dst.buffer.is_on_chip:
                return (), (self._leaving.copy(stmt),)
            case Parallel() | Atomic() if self._adds:
                return (), (self._leaving.addition(stmt),)
            case _ if any(_is_fed_copy(s, self._fed) for s in walk((stmt,))):
                raise Unfit(f"a copy in a {type(stmt).__name__.lower()} loop", stmt.loc)
            case _:
                return (), (stmt,)

    def _is_even(self, loop: For) -> bool:
        """True for a loop of products alone, or around one product and as long in every block."""
        if lone_products(loop, promoted=True) is not None:
            return True
        if sum(isinstance(s, Issue) for s in walk(loop.body)) != 1:
            return False
        deciding = [e for bound in (loop.start, loop.stop) for e in walk_expr(bound)]
        return not any(
            isinstance(e, Load) or (isinstance(e, Var) and e.id not in self._sizes)
            for e in deciding
        )

    def _require_pure(self, stmt: Stmt, *deciding: Expr) -> None:
        """Unfit where the load role cannot evaluate what decides over a copy."""
        if not all(map(self._is_pure, deciding)) and any(
            _is_fed_copy(s, self._fed) for s in walk((stmt,))
        ):
            raise Unfit("what decides over a copy is read from a tile", stmt.loc)


def _gemms(stmt: Stmt) -> Iterator[Gemm]:
    return (s for s in walk((stmt,)) if isinstance(s, Gemm))


def _are_rows(gemm: Gemm) -> bool:
    """True if the second operand is some rows of a tile, from where a swizzle pattern begins."""
    b = gemm.b
    start, count = const_value(b.starts[-2]), const_value(b.extents[-2])
    if not gemm.transpose_b or start is None or count is None:
        return False
    others = (*b.starts[:-2], b.starts[-1])
    known = all(const_value(s) == 0 for s in others) and b.extents[-1] == b.buffer.shape[-1]
    return known and start % PATTERN_ROWS == 0 and start + count <= _extent(b.buffer, -2)


def _extent(buffer: Buffer, dim: int) -> int:
    return (buffer.static_shape() or (0, 0))[dim]


def _is_fed_copy(stmt: Stmt, fed: dict[int, Descriptor]) -> bool:
    return isinstance(stmt, Copy) and stmt.dst.buffer.id in fed


def _loading(stmt: Stmt, load: Body) -> Body:
    """The statement in the load role; nothing where it loads nothing."""
    return (stmt,) if any(isinstance(s, Fetch) for s in walk(load)) else ()
