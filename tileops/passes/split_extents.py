"""Tiles in parts: buffers, and every statement that uses them.

Extents in parts are sums of few powers of two, all of whose uses can be cut. A tile of 576 columns
padded to 1024 needs nearly twice the shared memory and tensor-core work; as 512 and 64 columns it
needs no more than it has. An extent is in parts in a whole launch or nowhere in it, so that tiles
of equal extents fit each other.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tileops.errors import InternalError
from tileops.ir import fold, walk
from tileops.ir import stmt as ir
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.program import Program, const_value
from tileops.passes.analyze_index import Affine, affine
from tileops.passes.context import Context

Part = tuple[int, int]  # offset, size
Parts = Mapping[int, tuple[Part, ...]]
Lanes = Mapping[int, int]  # the variables of nests, by id, with their extents

# Tensor cores take 16 rows and columns at least; each part costs instructions of its own.
_LEAST = 16
_MOST = 3

_FALSE = fold.const(False)
Piece = tuple[int, int] | None  # offset and size; None is all of it
Axis = list[tuple[str, int]]  # operand and dimension


def split_extents(program: Program, context: Context) -> Program:
    """``program`` with the tiles of ``choose_parts`` in parts, each a buffer of its own.

    A statement over a tile in parts becomes one statement for each box of parts that it touches.
    """
    ids = walk.fresh_ids(program)

    def split(launch: ir.Launch) -> ir.Body:
        parts = choose_parts(launch)
        return _Splitter(parts, ids).body(launch.body, {}) if parts else launch.body

    return walk.map_launches(program, split)


class _Splitter:
    def __init__(self, parts: Parts, ids: Iterator[int]) -> None:
        self._parts, self._ids = parts, ids
        self._made: dict[tuple[int, tuple[int, ...]], Buffer] = {}

    # -- statements --------------------------------------------------------------------------------
    def body(self, body: ir.Body, lanes: Lanes) -> ir.Body:
        """A statement list in parts; ``lanes`` are the variables of nests with their extents."""
        return tuple(new for stmt in body for new in self._rewritten(stmt, lanes))

    def _rewritten(self, stmt: ir.Stmt, lanes: Lanes) -> Iterable[ir.Stmt]:
        stmt = walk.map_accesses(stmt, lambda b, indices: self._element(b, indices, lanes))
        match stmt:
            case ir.Alloc(buffer=buffer):
                return self._allocs(stmt, buffer)
            case ir.Parallel():
                return self._nest(stmt, lanes)
            case ir.Atomic() if walk.is_element(stmt):
                return [stmt]
            case ir.TileOperation() | ir.Atomic():
                return self._tile_statement(stmt, _axes(stmt))
        return [walk.map_bodies(stmt, lambda inner: self.body(inner, lanes))]

    def _allocs(self, stmt: ir.Alloc, buffer: Buffer) -> Iterable[ir.Stmt]:
        dims = [range(len(self._of(buffer, d)) or 1) for d in range(buffer.ndim)]
        for key in itertools.product(*dims):
            yield dataclasses.replace(stmt, buffer=self._part(buffer, key))

    def _tile_statement(self, stmt: ir.Stmt, axes: list[Axis]) -> Iterable[ir.Stmt]:
        """One statement for each box of pieces along ``axes``."""
        operands = {
            f: r for f in walk.operand_names(stmt) if isinstance(r := getattr(stmt, f), Region)
        }
        pieces = [self._pieces(*((operands[field], d) for field, d in axis)) for axis in axes]
        for box in itertools.product(*pieces):
            cuts: dict[str, dict[int, Piece]] = {field: {} for field in operands}
            for axis, piece in zip(axes, box, strict=True):
                for field, d in axis:
                    cuts[field][d] = piece
            changes: dict[str, Any] = {f: self._cut(r, cuts[f]) for f, r in operands.items()}
            match stmt:
                case ir.Reduce() if not _is_first(cuts["src"][stmt.dim]):
                    changes["clear"] = False
                case ir.Gemm() if not _is_first(box[-1]):
                    changes["clear"] = _FALSE
            yield dataclasses.replace(stmt, **changes)

    # -- nests -------------------------------------------------------------------------------------
    def _nest(self, nest: ir.Parallel, lanes: Lanes) -> Iterable[ir.Stmt]:
        """The nest once for each box of pieces of its variables, with allocations of its own."""
        nest = nest.flattened()
        vars_, extents, body = nest.vars, nest.extents, nest.body
        cuts = self._cuts(body, with_lanes(lanes, vars_, extents))
        pieces = [
            [None] if (n := const_value(e)) is None else _intervals(n, cuts.get(v.id, set()))
            for v, e in zip(vars_, extents, strict=True)
        ]
        for number, box in enumerate(itertools.product(*pieces)):
            moved: dict[int, Expr] = {}
            spans = list(extents)
            for at, (var, piece) in enumerate(zip(vars_, box, strict=True)):
                if piece is not None:
                    moved[var.id] = fold.add(var, fold.const(piece[0]))
                    spans[at] = fold.const(piece[1])
            own = _moved(body, moved, self._renamed(body) if number else {})
            inside = self.body(own, with_lanes(lanes, vars_, spans))
            yield ir.Parallel(vars_, tuple(spans), inside, **nest.provenance)

    def _cuts(self, body: ir.Body, lanes: Lanes) -> dict[int, set[int]]:
        """Where the variables of a nest pass from part to part of some tile."""
        cuts: dict[int, set[int]] = {}
        for stmt in walk.walk(body):
            for buffer, indices in walk.accesses(stmt):
                for d, index in enumerate(indices):
                    parts = self._of(buffer, d)
                    found = place(index, lanes) if parts else None
                    if found is not None and found[0] is not None:
                        cuts.setdefault(found[0], set()).update(o - found[1] for o, _ in parts)
        return cuts

    def _renamed(self, body: ir.Body) -> dict[int, Buffer]:
        allocs = (s.buffer for s in walk.walk(body) if isinstance(s, ir.Alloc))
        return {b.id: dataclasses.replace(b, id=next(self._ids)) for b in allocs}

    # -- buffers -----------------------------------------------------------------------------------
    def _of(self, buffer: Buffer, dim: int) -> tuple[Part, ...]:
        """The parts of one dimension; none where it is held whole."""
        if not buffer.is_on_chip:
            return ()
        return self._parts.get(const_value(buffer.shape[dim]) or 0, ())

    def _part(self, buffer: Buffer, key: tuple[int, ...]) -> Buffer:
        """The buffer that holds the parts ``key``, one number a dimension."""
        shape = list(buffer.shape)
        name = buffer.name
        for d, number in enumerate(key):
            if parts := self._of(buffer, d):
                shape[d] = fold.const(parts[number][1])
                name += f"_{number}"
        if name == buffer.name:
            return buffer
        if (buffer.id, key) not in self._made:
            made = dataclasses.replace(buffer, id=next(self._ids), name=name, shape=tuple(shape))
            self._made[buffer.id, key] = made
        return self._made[buffer.id, key]

    def _element(
        self, buffer: Buffer, indices: Sequence[Expr], lanes: Lanes
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """The part that holds an element, and the element's place in it."""
        key, out = [0] * len(indices), list(indices)
        for d, index in enumerate(indices):
            if parts := self._of(buffer, d):
                found = place(index, lanes)
                if found is None:
                    raise InternalError(f"`{buffer.name}` is in parts but not used in parts")
                key[d] = _number(parts, found[1])
                out[d] = fold.sub(index, fold.const(parts[key[d]][0]))
        return self._part(buffer, tuple(key)), tuple(out)

    def _pieces(self, *sides: tuple[Region, int]) -> list[Piece]:
        """One dimension of a statement, which each of ``sides`` walks, cut where a part ends."""
        sizes = [const_value(region.extents[d]) for region, d in sides]
        size = next((n for n in sizes if n is not None), None)
        if size is None:
            return [None]
        cuts: set[int] = set()
        for region, d in sides:
            if parts := self._of(region.buffer, d):
                start = const_value(region.starts[d]) or 0
                cuts |= {offset - start for offset, _ in parts}
        return _intervals(size, cuts)

    def _cut(self, region: Region, pieces: Mapping[int, Piece]) -> Region:
        """The pieces of a region, within one part along each dimension."""
        buffer = region.buffer
        starts, extents, key = list(region.starts), list(region.extents), [0] * buffer.ndim
        for d, piece in pieces.items():
            if piece is not None:
                starts[d] = fold.add(starts[d], fold.const(piece[0]))
                extents[d] = fold.const(piece[1])
        for d in range(buffer.ndim):
            if parts := self._of(buffer, d):
                start = const_value(starts[d])
                if start is None:
                    raise InternalError(f"`{buffer.name}` is in parts but not used in parts")
                key[d] = _number(parts, start)
                starts[d] = fold.const(start - parts[key[d]][0])
        return Region(self._part(buffer, tuple(key)), tuple(starts), tuple(extents))


def _moved(body: ir.Body, moved: Mapping[int, Expr], names: Mapping[int, Buffer]) -> ir.Body:
    """``body`` with expressions for variables and other buffers, each by id."""

    def rewritten(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
        new = walk.map_stmt_exprs(stmt, lambda e: walk.substitute(e, moved))
        new = walk.map_accesses(new, lambda b, indices: (names.get(b.id, b), indices))
        if isinstance(new, ir.Alloc):
            new = dataclasses.replace(new, buffer=names.get(new.buffer.id, new.buffer))
        return (walk.map_bodies(new, lambda inner: walk.replace_stmts(inner, rewritten)),)

    return walk.replace_stmts(body, rewritten)


def _intervals(size: int, cuts: set[int]) -> list[Piece]:
    """``0 .. size`` in pieces; one that is None where nothing cuts it."""
    bounds = [0, *sorted(c for c in cuts if 0 < c < size), size]
    if len(bounds) == 2:
        return [None]
    return [(lo, hi - lo) for lo, hi in itertools.pairwise(bounds)]


def _number(parts: Sequence[Part], at: int) -> int:
    """Which part holds place ``at``; the outermost ones stand for places outside."""
    return max(0, sum(offset <= at for offset, _ in parts) - 1)


def _is_first(piece: Piece) -> bool:
    return piece is None or piece[0] == 0


def _axes(stmt: ir.Stmt) -> list[Axis]:
    """The dimensions that a tile statement walks: for each, the operands with their dimensions."""
    match stmt:
        case ir.Copy(src=src, dst=dst):
            return _paired("src", src.squeezed(), "dst", dst.squeezed())
        case ir.Atomic(value=Region() as value, dst=dst):
            return _paired("value", value.squeezed(), "dst", dst.squeezed())
        case ir.Gemm(a=a, b=b, c=c):
            (am, ak), (bk, bn), (cm, cn) = (
                (r.buffer.ndim - 2, r.buffer.ndim - 1) for r in (a, b, c)
            )
            if stmt.transpose_a:
                am, ak = ak, am
            if stmt.transpose_b:
                bk, bn = bn, bk
            return [[("a", am), ("c", cm)], [("b", bn), ("c", cn)], [("a", ak), ("b", bk)]]
        case ir.Fill(dst=dst) | ir.Atomic(dst=dst):
            return [[("dst", d)] for d in dst.squeezed()]
        case ir.Reduction(dim=dim):
            return [[("src", dim)], *([("src", m), ("dst", n)] for m, n in stmt.pairs())]
        case ir.Scan(src=src):
            dims = tuple(range(len(src.extents)))
            return _paired("src", dims, "dst", dims)
        case ir.Transpose(src=src):
            dims = tuple(range(len(src.extents)))
            return _paired("src", dims, "dst", (*dims[:-2], dims[-1], dims[-2]))
        case ir.Im2col():  # its tile is never in parts
            return []
        case _:
            raise InternalError(f"no parts of {type(stmt).__name__}")


def _paired(a: str, a_dims: Sequence[int], b: str, b_dims: Sequence[int]) -> list[Axis]:
    if len(a_dims) != len(b_dims):
        # The generator refuses such a statement with its place in the program.
        return []
    return [[(a, m), (b, n)] for m, n in zip(a_dims, b_dims, strict=True)]


# -- which extents ---------------------------------------------------------------------------------
def powers(extent: int) -> tuple[Part, ...]:
    """``extent`` as a sum of powers of two, largest first; empty where padding serves better."""
    out: list[Part] = []
    offset = 0
    while offset < extent:
        size = 1 << ((extent - offset).bit_length() - 1)
        out.append((offset, size))
        offset += size
    fits = 1 < len(out) <= _MOST and out[-1][1] >= _LEAST
    return tuple(out) if fits else ()


def choose_parts(launch: ir.Launch) -> Parts:
    """Extent to parts, for the extents of matrix products whose every use can be cut."""
    wanted = {
        extent: parts
        for stmt in walk.walk(launch.body)
        if isinstance(stmt, ir.Gemm)
        for region in (stmt.a, stmt.b, stmt.c)
        for extent in (region.static_extents() or ())[-2:]
        if (parts := powers(extent))
    }
    if wanted:
        finder = _Uncut(wanted)
        finder.visit(launch.body, {})
        wanted = {e: p for e, p in wanted.items() if e not in finder.found}
    return wanted


class _Uncut:
    """Finds the extents of tiles with a use that does not fall apart into parts."""

    def __init__(self, wanted: Parts) -> None:
        self._wanted = wanted
        self.found: set[int] = set()

    def visit(self, body: ir.Body, lanes: Lanes) -> None:
        """Check a statement list; ``lanes`` are the variables of nests around it."""
        for stmt in body:
            self._check(stmt, lanes)
            inside = lanes
            if isinstance(stmt, ir.Parallel):
                inside = with_lanes(lanes, stmt.vars, stmt.extents)
            for inner in walk.sub_bodies(stmt):
                self.visit(inner, inside)

    def _check(self, stmt: ir.Stmt, lanes: Lanes) -> None:
        for buffer, indices in walk.accesses(stmt):
            self._check_element(buffer, indices, lanes)
        match stmt:
            case ir.Atomic() if walk.is_element(stmt):
                pass
            case ir.View(buffer=buffer, source=source):
                self._refuse(buffer)
                self._refuse(source)
            case ir.TileOperation() if stmt.undivided():
                for name, dim in stmt.undivided():
                    self._refuse(getattr(stmt, name).buffer, dim)
                for region in walk.regions(stmt):
                    self._check_region(region)
            case ir.Im2col() | ir.Print():
                for region in walk.regions(stmt):
                    self._refuse(region.buffer)
            case ir.Alloc(buffer=buffer) if buffer.static_shape() is None:
                self._refuse(buffer)
            case _:
                for region in walk.regions(stmt):
                    self._check_region(region)

    def _refuse(self, buffer: Buffer, dim: int | None = None) -> None:
        dims = range(buffer.ndim) if dim is None else (dim,)
        self.found |= {const_value(buffer.shape[d]) or 0 for d in dims}

    def _check_region(self, region: Region) -> None:
        if region.buffer.is_on_chip:
            for d in range(region.buffer.ndim):
                if const_value(region.starts[d]) is None or const_value(region.extents[d]) is None:
                    self._refuse(region.buffer, d)

    def _check_element(self, buffer: Buffer, indices: Sequence[Expr], lanes: Lanes) -> None:
        for d, index in enumerate(indices if buffer.is_on_chip else ()):
            if const_value(buffer.shape[d]) in self._wanted and place(index, lanes) is None:
                self._refuse(buffer, d)


def with_lanes(lanes: Lanes, vars_: Sequence[Var], extents: Sequence[Expr]) -> Lanes:
    """``lanes`` and those of a nest whose extents are constants."""
    sizes = {v.id: const_value(e) for v, e in zip(vars_, extents, strict=True)}
    return {**lanes, **{v: n for v, n in sizes.items() if n is not None}}


def place(index: Expr, lanes: Lanes) -> tuple[int | None, int] | None:
    """``index`` as (loop variable or None, constant), if it is their sum."""
    if (value := const_value(index)) is not None:
        return None, value
    match affine(index, lanes.keys()):
        case Affine(coefficients=((var, 1),), rest=rest):
            value = const_value(rest)
            return None if value is None else (var, value)
        case _:
            return None
