"""The extents that are held in parts: sums of few powers of two, all of whose uses can be cut.

A tile of 576 columns padded to 1024 needs nearly twice the shared memory and tensor-core work; as
512 and 64 columns it needs no more than it has. An extent is in parts in a whole launch or nowhere
in it, so that tiles of equal extents fit each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.program import const_value
from tileops.ir.stmt import (
    Alloc,
    Atomic,
    Body,
    Gemm,
    Im2col,
    Launch,
    Parallel,
    Print,
    Stmt,
    TileOperation,
    View,
)
from tileops.ir.walk import accesses, is_element, regions, sub_bodies, walk
from tileops.passes.analyze_index import Affine, affine

Part = tuple[int, int]  # offset, size
Parts = Mapping[int, tuple[Part, ...]]
Lanes = Mapping[int, int]  # the variables of nests, by id, with their extents

# Tensor cores take 16 rows and columns at least; each part costs instructions of its own.
_LEAST = 16
_MOST = 3


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


def choose_parts(launch: Launch) -> Parts:
    """Extent to parts, for the extents of matrix products whose every use can be cut."""
    wanted = {
        extent: parts
        for stmt in walk(launch.body)
        if isinstance(stmt, Gemm)
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

    def visit(self, body: Body, lanes: Lanes) -> None:
        """Check a statement list; ``lanes`` are the variables of nests around it."""
        for stmt in body:
            self._check(stmt, lanes)
            inside = lanes
            if isinstance(stmt, Parallel):
                inside = with_lanes(lanes, stmt.vars, stmt.extents)
            for inner in sub_bodies(stmt):
                self.visit(inner, inside)

    def _check(self, stmt: Stmt, lanes: Lanes) -> None:
        for buffer, indices in accesses(stmt):
            self._check_element(buffer, indices, lanes)
        match stmt:
            case Atomic() if is_element(stmt):
                pass
            case View(buffer=buffer, source=source):
                self._refuse(buffer)
                self._refuse(source)
            case TileOperation() if stmt.undivided():
                for name, dim in stmt.undivided():
                    self._refuse(getattr(stmt, name).buffer, dim)
                for region in regions(stmt):
                    self._check_region(region)
            case Im2col() | Print():
                for region in regions(stmt):
                    self._refuse(region.buffer)
            case Alloc(buffer=buffer) if buffer.static_shape() is None:
                self._refuse(buffer)
            case _:
                for region in regions(stmt):
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
