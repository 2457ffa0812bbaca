"""What the expressions of a launch are in one choice of sizes and blocks."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tileops.errors import ProgramValueError
from tileops.ir import explicit, fold
from tileops.ir.expr import Binary, Const, Expr, Load, Var
from tileops.ir.operators import COMPARISONS
from tileops.ir.program import Program
from tileops.ir.stmt import Bind, For, If, Launch, While
from tileops.ir.walk import map_children, regions, walk, walk_expr

# What one group knows: values of variables, by id.
Env = dict[int, Expr]

_MOST_FACTOR = 4096


@dataclass
class World:
    """One choice of sizes and of a block. Elements of tensors and tiles have a value each."""

    values: Env
    pool: tuple[int, ...]
    _chosen: dict[Expr, Const] = field(default_factory=dict)

    def value(self, expr: Expr, env: Env) -> int | float | bool:
        """The value of an expression of one group."""
        if isinstance(expr, Const):
            return expr.value
        try:
            found = self.settled(fold.substitute(expr, {**self.values, **env}), env)
        except ProgramValueError:  # a division by zero, for example
            found = self._choice(expr)
        return found.value

    def known(self, expr: Expr, env: Env) -> Expr:
        """``expr`` with the values of all variables that are known."""
        if isinstance(expr, Const):
            return expr
        try:
            return fold.substitute(expr, {**self.values, **env})
        except ProgramValueError:  # a division by zero, for example
            return expr

    def settled(self, expr: Expr, env: Env) -> Const:
        """``expr`` with a number for every element and function."""
        if isinstance(expr, Const):
            return expr
        if isinstance(expr, Load) and expr.buffer.scope == "var":
            held = env.get(expr.buffer.id)
            return held if isinstance(held, Const) else fold.const(0, expr.dtype)
        expr = fold.substitute(map_children(expr, lambda e: self.settled(e, env)), {})
        if isinstance(expr, Const):
            return expr
        if expr not in self._chosen:
            self._chosen[expr] = self._choice(expr)
        return self._chosen[expr]

    def _choice(self, expr: Expr) -> Const:
        """Some value, the same wherever the expression stands."""
        number = zlib.crc32(expr.text().encode())
        if expr.dtype.is_bool:
            return fold.const(bool(number & 1), expr.dtype)
        if expr.dtype.is_float:
            return fold.const(1.0, expr.dtype)
        return fold.const(self.pool[number % len(self.pool)], expr.dtype)


def worlds(program: Program, launch: Launch, rng: random.Random) -> Iterator[World]:
    """Choices without end; the first one has long loops.

    There is only one where nothing but constants and loops decides what a launch does.
    """
    control = list(_control(launch))
    free = [s.var for s in program.sizes] + [s.var for s in program.scalars()]
    open_ids = {v.id for v in (*free, *launch.block_vars)}
    is_open = any(
        isinstance(e, Load) or (isinstance(e, Var) and e.id in open_ids)
        for expr in control
        for e in walk_expr(expr)
    )
    factors = sorted({1, *(n for e in control for n in _factors(e))})
    for number, trips in enumerate(_trips()):
        largest = factors[-1]
        pool = tuple(trips * f for f in factors)
        given: Env = {}
        for var in free:
            size = trips * largest if number == 0 else trips * rng.choice(factors)
            given[var.id] = fold.const(bool(size & 1) if var.dtype.is_bool else size, var.dtype)
        yield World({**given, **_block(launch, given, number, rng)}, pool)
        if not is_open:
            return


def _trips() -> Iterator[int]:
    yield from (9, 1, 2, 0, 3, 5, 4, 8)
    while True:
        yield 7


def _block(launch: Launch, sizes: Env, number: int, rng: random.Random) -> Env:
    """The variables of one block; of an empty grid, those that its first block would have."""
    found: Env = {}
    for var, extent in zip(launch.block_vars, launch.grid, strict=True):
        try:
            known = fold.substitute(extent, sizes)
        except ProgramValueError:  # a division by zero, for example
            known = extent
        count = max(1, int(known.value)) if isinstance(known, Const) else 4
        place = count - 1 if number == 0 else rng.randrange(count)
        found[var.id] = fold.const(place, var.dtype)
    return found


def _control(launch: Launch) -> Iterator[Expr]:
    """What decides which steps run, on which barriers and slots."""
    for stmt in walk(launch.body):
        match stmt:
            case For(start=start, stop=stop):
                yield from (start, stop)
            case If(cond=cond) | While(cond=cond):
                yield cond
            case Bind(value=value):
                yield value
            case explicit.BarrierStep(slot=slot):
                yield slot
            case explicit.CopyLater(slot=Expr() as slot):
                yield slot
        if isinstance(stmt, explicit.BarrierWait):
            yield stmt.parity
        for region in regions(stmt):
            if region.buffer.scope == "shared":
                yield from region.starts


def _factors(expr: Expr) -> Iterator[int]:
    for e in walk_expr(expr):
        if isinstance(e, Binary) and e.op not in COMPARISONS:
            for side in (e.a, e.b):
                if isinstance(side, Const) and side.dtype.is_integer:
                    value = abs(int(side.value))
                    if 1 < value <= _MOST_FACTOR:
                        yield value
