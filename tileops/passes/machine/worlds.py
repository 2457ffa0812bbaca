"""What a run assumes: sizes, blocks, trip counts and the values that no role computes.

A world gives every run-time value a number, the same in all roles. Where a constant bounds a loop,
a world may have a smaller one in its place: constants keep their order, and 64 iterations are told
from 4 by nothing that a schedule says. They keep their order to the largest values of variables
too, since a pass may have relied on it. A bound that is known at run time only may give no trip.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tileops.dtypes import BOOL
from tileops.errors import ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Binary, Const, Expr, Load, Var
from tileops.ir.operators import COMPARISONS, LOGICAL
from tileops.ir.schedule import Release, Schedule
from tileops.ir.stmt import Assume, Bind, Body, For, If, Launch, Stmt, While
from tileops.ir.walk import map_children, walk, walk_expr
from tileops.passes.analyze_ranges import Ranges

# Operators through which a constant bounds a loop as it is.
_ORDER = ("min", "max", *COMPARISONS, *LOGICAL)
_MOST_FACTOR = 4096
_UNKNOWN = (1 << 31) - 1  # the largest value of an int32 of which nothing is known
_FEW_BLOCKS = (1, 3, 2)

Env = dict[int, Expr]


class Unusable(Exception):
    """A world that cannot be: it breaks an assumption of the program, or runs for too long."""


@dataclass
class World:
    """One choice of all values; ``blocks`` are those of one program of the grid, in order."""

    sizes: Env
    blocks: list[Env]
    shorter: Mapping[int, int]
    pool: list[int]
    random: random.Random
    # What was chosen for elements of tensors and for functions, by their expressions.
    _chosen: dict[Expr, Const] = field(default_factory=dict)

    def value(self, expr: Expr, env: Env) -> int | float | bool:
        """The value of an expression whose variables ``env`` has."""
        try:
            found = fold.substitute(self._shortened(expr), env)
            if not isinstance(found, Const):
                found = self._settled(found)
        except ProgramValueError:
            raise Unusable from None  # a division by zero, for example
        return found.value

    def _shortened(self, expr: Expr) -> Expr:
        """``expr`` with the shorter bounds of this world."""
        match expr:
            case Const(value=int(value)) if expr.dtype.is_integer and value in self.shorter:
                return replace(expr, value=self.shorter[value])
            case Binary(op=op) if op in _ORDER:
                return map_children(expr, self._shortened)
        return expr

    def _settled(self, expr: Expr) -> Const:
        """``expr`` with a number for every element that it loads and for what does not fold."""
        if isinstance(expr, Const):
            return expr
        expr = fold.substitute(map_children(expr, self._settled), {})
        if isinstance(expr, Const):
            return expr
        # Tensors are the same for all; a tile's element is each role's own, and changes.
        if any(isinstance(e, Load) and e.buffer.is_on_chip for e in walk_expr(expr)):
            return self.unknown(expr)
        if expr not in self._chosen:
            self._chosen[expr] = self.unknown(expr)
        return self._chosen[expr]

    def unknown(self, expr: Expr) -> Const:
        """Some value of the expression's dtype."""
        if expr.dtype.is_bool:
            return fold.const(self.random.random() < 0.5, BOOL)
        if expr.dtype.is_float:
            return fold.const(self.random.random(), expr.dtype)
        return fold.const(self.random.choice(self.pool), expr.dtype)


def worlds(
    schedule: Schedule, launch: Launch, ranges: Ranges, rng: random.Random
) -> Iterator[World]:
    """Worlds without end; the first ones have trip counts of every kind."""
    control = [*_control(schedule.load), *_control(schedule.math)]
    free = _free(schedule, launch, control)
    shapes = [leaf for e in control for leaf in _leaves(e)]
    bounds = {n for leaf in shapes for n in _value(leaf) if n > 0}
    kept = {int(hi) for leaf in shapes if 0 <= (hi := _largest(leaf, ranges)) < _UNKNOWN}
    factors = sorted({1, *(n for e in control for n in _constants(e) if 1 < n <= _MOST_FACTOR)})
    depth = max(ring.depth for ring in schedule.rings)
    trips = [2 * depth + 1, 0, depth + 1, 1, 2, *range(2 * depth + 1)]
    number = 0
    while True:
        most = trips[number % len(trips)]
        pool = [max(0, f * most + rng.choice((-1, 0, 0, 0, 1))) for f in factors]
        pool += [rng.choice(factors) * rng.choice(trips) for _ in factors]
        shorter = _shorter(bounds, kept, max(1, most))
        sizes: Env = {v.id: _within(v, ranges, pool, rng) for v in free}
        count = _FEW_BLOCKS[number % len(_FEW_BLOCKS)] if schedule.persistent else 1
        number += 1
        try:
            blocks = [_block(launch, sizes, rng) for _ in range(count)]
        except (Unusable, ProgramValueError):
            blocks = []  # an empty grid
        yield World(sizes, blocks, shorter, pool, rng)


def _within(var: Var, ranges: Ranges, pool: list[int], rng: random.Random) -> Const:
    span = ranges.of(var)
    if not var.dtype.is_integer:
        return fold.const(rng.random() < 0.5, var.dtype)
    return fold.const(int(min(max(rng.choice(pool), span.lo), span.hi)), var.dtype)


def _block(launch: Launch, sizes: Env, rng: random.Random) -> Env:
    """The variables of one block of the grid; Unusable for an empty grid."""
    found: Env = {}
    for var, extent in zip(launch.block_vars, launch.grid, strict=True):
        size = fold.substitute(extent, sizes)
        count = int(size.value) if isinstance(size, Const) else 8
        if count < 1:
            raise Unusable
        few = min(count, 4)
        first, last = rng.randrange(few), count - 1 - rng.randrange(few)
        # Loops that depend on a block's number are short in the first blocks.
        number = rng.choice((first, first, last))
        found[var.id] = fold.const(number, var.dtype)
    return found


def _control(body: Body) -> Iterator[Expr]:
    """The expressions that decide which steps run."""
    for stmt in walk(body):
        match stmt:
            case For(start=start, stop=stop):
                yield start
                yield stop
            case If(cond=cond) | While(cond=cond) | Assume(cond=cond) | Release(when=cond):
                yield cond
            case Bind(value=value):
                yield value


def _free(schedule: Schedule, launch: Launch, control: list[Expr]) -> list[Var]:
    """The variables that come from outside the launch."""
    own = {v.id for v in launch.block_vars}
    if schedule.first_row is not None:
        own.add(schedule.first_row.id)
    for stmt in walk((*schedule.load, *schedule.math)):
        own |= {v.id for v in defined_vars(stmt)}
    found = {e.id: e for x in (*control, *launch.grid) for e in walk_expr(x) if isinstance(e, Var)}
    return [v for n, v in sorted(found.items()) if n not in own]


def defined_vars(stmt: Stmt) -> Iterator[Var]:
    """The variables that a statement brings into being."""
    for name in stmt.DEFINES:
        value = getattr(stmt, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Var):
                yield item


def _leaves(expr: Expr) -> Iterator[Expr]:
    """What is compared as it is."""
    if isinstance(expr, Binary) and expr.op in _ORDER:
        yield from _leaves(expr.a)
        yield from _leaves(expr.b)
    else:
        yield expr


def _value(leaf: Expr) -> Iterator[int]:
    if isinstance(leaf, Const) and leaf.dtype.is_integer:
        yield int(leaf.value)


def _largest(leaf: Expr, ranges: Ranges) -> float:
    """The largest value of what is not a constant; infinite for a constant."""
    integral = leaf.dtype.is_integer and not isinstance(leaf, Const)
    return ranges.of(leaf).hi if integral else math.inf


def _shorter(bounds: set[int], kept: set[int], most: int) -> dict[int, int]:
    """For each bound, one that is ``most`` above the next smaller bound or kept value, or less."""
    found, last, moved = {}, 0, 0
    for value in sorted(bounds | kept):
        moved = value if value in kept else moved + min(value - last, most)
        last = value
        if value in bounds:
            found[value] = moved
    return found


def _constants(expr: Expr) -> Iterator[int]:
    for e in walk_expr(expr):
        if isinstance(e, Const) and e.dtype.is_integer:
            yield abs(int(e.value))
