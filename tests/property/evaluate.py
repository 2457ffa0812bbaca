"""A plain evaluation of the tile IR with numpy, one element at a time, as the language reference says.

It shares nothing with the code generators: no index analysis, no vectorising, no padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tileops.dtypes import DType
from tileops.ir.expr import Binary, Cast, Const, Expr, Load, Region, Select, Unary, Var
from tileops.ir.program import Program
from tileops.ir.stmt import (
    Alloc,
    Bind,
    Body,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Reduce,
    Stmt,
    Store,
)

BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "floormod": np.mod,
    "ceildiv": lambda a, b: -(-int(a) // int(b)),
    "min": np.minimum, "max": np.maximum, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "land": np.logical_and, "lor": np.logical_or,
}  # fmt: skip
REDUCE = {
    "sum": lambda x, axis, dtype: np.add.reduce(x.astype(dtype), axis, dtype=dtype),
    "max": lambda x, axis, dtype: np.maximum.reduce(x, axis).astype(dtype),
    "min": lambda x, axis, dtype: np.minimum.reduce(x, axis).astype(dtype),
    "absmax": lambda x, axis, dtype: np.maximum.reduce(np.abs(x.astype(dtype)), axis),
    "abssum": lambda x, axis, dtype: np.add.reduce(np.abs(x.astype(dtype)), axis, dtype=dtype),
}
FOLD = {
    "sum": np.add,
    "abssum": np.add,
    "max": np.maximum,
    "absmax": lambda old, new: np.maximum(np.abs(old), new),
    "min": np.minimum,
}


def numpy_type(dtype: DType) -> type:
    return np.dtype(str(dtype)).type


class Machine:
    """One program on given global arrays, changed in place."""

    def __init__(self, arrays: Mapping[int, np.ndarray]) -> None:
        self.arrays = dict(arrays)
        self.env: dict[int, Any] = {}

    def run(self, program: Program) -> None:
        for launch in program.launches:
            self.launch(launch)

    def launch(self, launch: Launch) -> None:
        sizes = [int(self.value(e)) for e in launch.grid]
        for place in itertools.product(*(range(n) for n in sizes)):
            for var, index in zip(launch.block_vars, place, strict=True):
                self.env[var.id] = np.int32(index)
            self.body(launch.body)

    def body(self, body: Body) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Alloc(buffer=b):
                shape = tuple(int(self.value(e)) for e in b.shape)
                self.arrays[b.id] = np.full(shape, 99, numpy_type(b.dtype))
            case Fill(dst=d, value=v):
                for index in self.points(d):
                    self.put(d, index, self.value(v))
            case Copy(src=s, dst=d):
                self.copy(s, d)
            case Bind(var=v, value=value):
                self.env[v.id] = self.value(value)
            case Store(buffer=b, indices=ix, value=v):
                self.store(self.arrays[b.id], tuple(int(self.value(i)) for i in ix), self.value(v))
            case Parallel() | For() | If():
                self.nested(stmt)
            case Gemm():
                self.gemm(stmt)
            case Reduce():
                self.reduce(stmt)
            case _:
                raise NotImplementedError(type(stmt).__name__)

    def nested(self, stmt: Parallel | For | If) -> None:
        match stmt:
            case Parallel(vars=vs, extents=es, body=body):
                for place in itertools.product(*(range(int(self.value(e))) for e in es)):
                    self.env.update({v.id: np.int32(n) for v, n in zip(vs, place, strict=True)})
                    self.body(body)
            case For(var=v, start=a, stop=b, body=body):
                for n in range(int(self.value(a)), int(self.value(b))):
                    self.env[v.id] = np.int32(n)
                    self.body(body)
            case If(cond=c, then=t, orelse=o):
                self.body(t if self.value(c) else o)

    # -- regions -------------------------------------------------------------------------------
    def points(self, region: Region) -> list[tuple[int, ...]]:
        starts = [int(self.value(s)) for s in region.starts]
        extents = [int(self.value(e)) for e in region.extents]
        return list(
            itertools.product(*(range(s, s + e) for s, e in zip(starts, extents, strict=True)))
        )

    def put(self, region: Region, index: tuple[int, ...], value: Any) -> None:
        self.store(self.arrays[region.buffer.id], index, value)

    def copy(self, src: Region, dst: Region) -> None:
        # Extents of 1 dropped, both sides have one shape: their points pair in order.
        values = [self.fetch(self.arrays[src.buffer.id], p) for p in self.points(src)]
        for point, value in zip(self.points(dst), values, strict=True):
            self.put(dst, point, self.converted(value, dst.dtype))

    def matrix(self, region: Region) -> np.ndarray:
        values = [self.fetch(self.arrays[region.buffer.id], p) for p in self.points(region)]
        shape = tuple(int(self.value(e)) for e in region.extents)
        return np.array(values).reshape(shape[-2:])

    def gemm(self, stmt: Gemm) -> None:
        a, b = self.matrix(stmt.a).astype(np.float64), self.matrix(stmt.b).astype(np.float64)
        product = (a.T if stmt.transpose_a else a) @ (b.T if stmt.transpose_b else b)
        old = np.zeros_like(product) if self.value(stmt.clear) else self.matrix(stmt.c)
        for point, value in zip(self.points(stmt.c), (old + product).ravel(), strict=True):
            self.put(stmt.c, point, self.converted(value, stmt.c.dtype))

    def reduce(self, stmt: Reduce) -> None:
        source, target = self.arrays[stmt.src.buffer.id], self.arrays[stmt.dst.buffer.id]
        result = REDUCE[stmt.kind](source, stmt.dim, target.dtype).reshape(target.shape)
        target[...] = result if stmt.clear else FOLD[stmt.kind](target, result)

    # -- elements ------------------------------------------------------------------------------
    @staticmethod
    def inside(array: np.ndarray, index: tuple[int, ...]) -> bool:
        return all(0 <= i < n for i, n in zip(index, array.shape, strict=True))

    def fetch(self, array: np.ndarray, index: tuple[int, ...]) -> Any:
        return array[index] if self.inside(array, index) else array.dtype.type(0)

    def store(self, array: np.ndarray, index: tuple[int, ...], value: Any) -> None:
        if self.inside(array, index):
            array[index] = value

    def converted(self, value: Any, dtype: DType) -> Any:
        kind = numpy_type(dtype)
        if dtype.is_integer and isinstance(value, (float, np.floating)):
            return kind(int(value))
        return np.asarray(value).astype(kind)[()]

    def value(self, expr: Expr) -> Any:
        match expr:
            case Const(value=v, dtype=d):
                return numpy_type(d)(v)
            case Var(id=n):
                return self.env[n]
            case Cast(a=a, dtype=d):
                return self.converted(self.value(a), d)
            case Select(cond=c, a=a, b=b):
                return self.value(a if self.value(c) else b)
            case Load(buffer=b, indices=ix):
                return self.fetch(self.arrays[b.id], tuple(int(self.value(i)) for i in ix))
            case Unary(op="neg", a=a):
                return -self.value(a)
            case Unary(op="not", a=a):
                return np.logical_not(self.value(a))
            case Binary(op=op, a=a, b=b):
                return self.converted(BINARY[op](self.value(a), self.value(b)), expr.dtype)
            case _:
                raise NotImplementedError(type(expr).__name__)
