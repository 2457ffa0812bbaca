"""Statements on real numbers, a tile at a time, as the language reference says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir.expr import Expr, Region
from tileops.ir.stmt import (
    Alloc,
    Assume,
    Atomic,
    Bind,
    Body,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Parallel,
    Reduce,
    Stmt,
    Store,
    Transpose,
    View,
)
from tileops.testing.simulation.elements import Elements, Values, converted, torch_dtype

_ALL = torch.ones((), dtype=torch.bool)
_REDUCTIONS: Mapping[str, Callable[[Values, int], Values]] = {
    "sum": lambda x, dim: x.double().sum(dim) if x.is_floating_point() else x.sum(dim),
    "abssum": lambda x, dim: _REDUCTIONS["sum"](x.abs(), dim),
    "max": lambda x, dim: x.amax(dim),
    "min": lambda x, dim: x.amin(dim),
    "absmax": lambda x, dim: x.abs().amax(dim),
}
# How the result of a reduction meets the value that was there.
_FOLDS: Mapping[str, Callable[[Values, Values], Values]] = {
    "sum": torch.add,
    "abssum": torch.add,
    "max": torch.maximum,
    "absmax": lambda old, new: torch.maximum(old.abs(), new),
    "min": torch.minimum,
}


@dataclass(frozen=True)
class Box:
    """A region at one moment: ``inner`` is what of it is in ``held``, at ``outer`` of the box."""

    held: Values
    extents: list[int]
    inner: tuple[slice, ...]
    outer: tuple[slice, ...]
    outside: Values

    def read(self) -> Values:
        """The elements; what is out of bounds is 0 or the safe value."""
        found = self.outside.repeat(self.extents)
        found[self.outer] = self.held[self.inner]
        return found

    def matrix(self) -> Values:
        """The elements as a matrix of the last two dimensions."""
        return self.read().reshape(self.extents[-2:])

    def write(self, values: Values) -> None:
        """Put elements; what is out of bounds is dropped."""
        self.held[self.inner] = values.reshape(self.extents)[self.outer]

    def add(self, values: Values) -> None:
        """Add to elements; what is out of bounds is dropped."""
        self.held[self.inner] += values.reshape(self.extents)[self.outer]


class Tiles(Elements):
    """The tiles and variables of one process, and what statements without control flow do to them.

    What a new tile holds is garbage: NaN, or the largest integer.
    """

    def run(self, stmt: Stmt) -> None:
        """Run one statement; UnsupportedConstructError for one that the simulation lacks."""
        match stmt:
            case Alloc(buffer=buffer, init=init):
                shape = [self.number(e) for e in buffer.shape]
                self.buffers[buffer.id] = garbage(shape, buffer.dtype)
                if init is not None:
                    self.buffers[buffer.id].fill_(self.value(init))
            case Fill(dst=dst, value=value):
                extents = [self.number(e) for e in dst.extents]
                self.write(dst, self.value(value).expand(extents))
            case Copy(src=src, dst=dst):
                self.write(dst, converted(self.read(src), dst.dtype))
            case Bind(var=var, value=value):
                self.vars[var.id] = self.value(value)
            case Store() | Parallel() | Atomic():
                self._nest((stmt,), _ALL)
            case Gemm(c=c):
                start = None if self.number(stmt.clear) else self.at(c).matrix()
                self.write(c, multiplied(stmt, self.at(stmt.a), self.at(stmt.b), start))
            case _:
                self._rare(stmt)

    def _rare(self, stmt: Stmt) -> None:
        match stmt:
            case Reduce():
                self._reduce(stmt)
            case Transpose(src=src, dst=dst):
                self.write(dst, converted(self.read(src).mT, dst.dtype))
            case View(buffer=buffer, source=source) if buffer.dtype == source.dtype:
                shape = [self.number(e) for e in buffer.shape]
                self.buffers[buffer.id] = self.buffers[source.id].view(shape)
            case Assume():
                pass
            case _:
                raise UnsupportedConstructError(
                    f"the simulation has no {type(stmt).__name__.lower()}", location=stmt.loc
                )

    # -- regions ---------------------------------------------------------------------------------
    def at(self, region: Region) -> Box:
        """The elements of a region, whose place is computed now."""
        held = self.buffers[region.buffer.id]
        inner, outer = [], []
        extents = [self.number(e) for e in region.extents]
        for start, extent, size in zip(region.starts, extents, held.shape, strict=True):
            first = self.number(start)
            low = min(max(first, 0), size)
            high = max(low, min(first + extent, size))
            inner.append(slice(low, high))
            outer.append(slice(low - first, high - first) if high > low else slice(0, 0))
        outside = self.safe.get(region.buffer.id, torch.zeros((), dtype=held.dtype))
        return Box(held, extents, tuple(inner), tuple(outer), outside)

    def read(self, region: Region) -> Values:
        """The elements of a region."""
        return self.at(region).read()

    def write(self, region: Region, values: Values) -> None:
        """Put elements into a region."""
        self.at(region).write(values)

    def _reduce(self, stmt: Reduce) -> None:
        source = self.read(stmt.src)
        dtype = stmt.dst.dtype
        if stmt.kind not in _REDUCTIONS or not dtype.is_signed:
            raise UnsupportedConstructError(
                f"the simulation has no {stmt.text()}", location=stmt.loc
            )
        wide = source if stmt.kind in ("max", "min") else converted(source, dtype)
        found = _REDUCTIONS[stmt.kind](wide, stmt.dim)
        if not stmt.clear:
            old = self.read(stmt.dst).reshape(found.shape)
            found = _FOLDS[stmt.kind](old.to(found.dtype), found)
        self.write(stmt.dst, converted(found, dtype))

    # -- nests -----------------------------------------------------------------------------------
    def _nest(self, body: Body, active: Values) -> None:
        """Run statements for all points at once where ``active``."""
        for stmt in body:
            match stmt:
                case Bind(var=var, value=value):
                    self.vars[var.id] = self.value(value)
                case Store(buffer=buffer, indices=indices, value=value):
                    self.store(buffer, self._all(indices), self.value(value), active)
                case Atomic(op="add", dst=dst, value=Expr() as value, result=None):
                    self.add(dst.buffer, self._all(dst.starts), self.value(value), active)
                case Parallel():
                    self._points(stmt, active)
                case For(var=var):
                    for number in range(self.number(stmt.start), self.number(stmt.stop)):
                        self.vars[var.id] = torch.tensor(number, dtype=torch_dtype(var.dtype))
                        self._nest(stmt.body, active)
                case If(cond=cond):
                    holds = self.value(cond)
                    self._nest(stmt.then, active & holds)
                    self._nest(stmt.orelse, active & ~holds)
                case _:
                    raise UnsupportedConstructError(
                        f"the simulation has no {type(stmt).__name__.lower()} in a nest",
                        location=stmt.loc,
                    )

    def _points(self, nest: Parallel, active: Values) -> None:
        nest = nest.flattened()
        extents = [self.number(e) for e in nest.extents]
        for axis, (var, extent) in enumerate(zip(nest.vars, extents, strict=True)):
            shape = [extent if n == axis else 1 for n in range(len(extents))]
            self.vars[var.id] = torch.arange(extent, dtype=torch_dtype(var.dtype)).view(shape)
        self._nest(nest.body, active.expand(extents))

    def _all(self, exprs: tuple[Expr, ...]) -> list[Values]:
        return [self.value(e) for e in exprs]


def multiplied(gemm: Gemm, a: Box, b: Box, start: Values | None) -> Values:
    """``start`` (or zero) and the product of two matrices, rounded once: sums are of float64."""
    first, second = a.matrix().double(), b.matrix().double()
    product = (first.mT if gemm.transpose_a else first) @ (
        second.mT if gemm.transpose_b else second
    )
    return converted(product if start is None else start.double() + product, gemm.c.dtype)


def garbage(shape: Sequence[int], dtype: DType) -> Values:
    """What memory holds that nobody has written."""
    kind = torch_dtype(dtype)
    if dtype.is_float:
        return torch.full(shape, float("nan"), dtype=torch.float32).to(kind)
    return torch.full(shape, 1 if dtype.is_bool else torch.iinfo(kind).max, dtype=kind)
