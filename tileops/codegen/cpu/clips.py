"""Clips: the part of a nest's loops outside which every store is outside its buffer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tileops.codegen.cpu.expressions import index
from tileops.codegen.cpu.state import LaunchState, Proven
from tileops.ir.expr import Expr, Load, Var
from tileops.ir.stmt import Assume, Bind, Body, For, If, Store
from tileops.ir.walk import walk, walk_expr
from tileops.passes.analyze_index import Affine, affine, needs_guard, uses


@dataclass(frozen=True)
class Limit:
    """A bound of one loop, as int64 text in terms of the loops around it."""

    level: int
    is_low: bool  # the first iteration; otherwise the one after the last
    text: str


@dataclass(frozen=True)
class Clip:
    """Limits of a nest's loops, tests before them, and what holds inside."""

    limits: tuple[Limit, ...] = ()
    tests: tuple[str, ...] = ()
    proven: frozenset[Proven] = frozenset()

    def at(self, level: int, *, is_low: bool) -> list[str]:
        """The limits of one side of the loop at ``level``."""
        return [x.text for x in self.limits if x.level == level and x.is_low is is_low]


def clip_of(state: LaunchState, variables: tuple[Var, ...], body: Body, inner: set[int]) -> Clip:
    """What all stores of a nest need; an iteration without it has no effect and may be left out.

    Empty where the body does anything but store to global buffers, because an iteration that stores
    nothing could then still matter. ``inner`` holds the ids of variables defined in the body.
    """
    stores = [s for s in walk(body) if isinstance(s, Store)]
    if not all(isinstance(s, (Store, Bind, If, For, Assume)) for s in walk(body)) or any(
        s.buffer.is_on_chip for s in stores
    ):
        return Clip()
    needed: frozenset[Proven] | None = None
    bounds: dict[Proven, str] = {}
    for store in stores:
        conditions = _conditions(state, store, bounds)
        needed = conditions if needed is None else needed & conditions
    # In the order of the program's text: a set has none.
    wanted = [c for c in bounds if c in (needed or ())]
    return _as_clip(state, variables, wanted, bounds, inner)


def _conditions(state: LaunchState, store: Store, bounds: dict[Proven, str]) -> frozenset[Proven]:
    """What must hold for the element to exist; notes the text of each extent in ``bounds``."""
    found = []
    extents = state.place(store.buffer).extents
    for at, extent, bound in zip(store.indices, store.buffer.shape, extents, strict=True):
        lower, upper = needs_guard(at, extent, state.ranges)
        for side, is_needed in (("lower", lower), ("upper", upper)):
            if is_needed:
                condition = Proven(at, extent, side)
                bounds[condition] = bound
                found.append(condition)
    return frozenset(found)


def _as_clip(
    state: LaunchState,
    variables: tuple[Var, ...],
    wanted: list[Proven],
    bounds: dict[Proven, str],
    inner: set[int],
) -> Clip:
    limits, tests, proven = [], [], []
    for condition in wanted:
        split = _split(state, variables, condition.index, inner)
        if split is None:
            continue
        level, factor, rest = split
        bound = "0" if condition.side == "lower" else bounds[condition]
        proven.append(condition)
        if level < 0:
            tests.append(f"{rest} {'>=' if condition.side == 'lower' else '<'} {bound}")
        elif factor == 1:
            limits.append(Limit(level, condition.side == "lower", f"{bound} - ({rest})"))
        else:
            limits.append(Limit(level, condition.side == "upper", f"({rest}) - {bound} + 1"))
    return Clip(tuple(limits), tuple(tests), frozenset(proven))


def _split(
    state: LaunchState, variables: tuple[Var, ...], at: Expr, inner: set[int]
) -> tuple[int, int, str] | None:
    """``at`` as the innermost loop that moves it, its factor there (1 or -1), and the rest's text.

    The level is -1 where no loop moves it. None for an index that is not of this form.
    """
    form = fixed_form(at, {v.id for v in variables}, inner)
    if form is None:
        return None
    level, factor, rest = -1, 0, index(state, form.rest)
    for n, var in enumerate(variables):
        if not form.coefficient(var.id):
            continue
        if level >= 0:
            rest += f" + {factor} * static_cast<i64>({state.name(variables[level])})"
        level, factor = n, form.coefficient(var.id)
    return (level, factor, rest) if factor in (-1, 0, 1) else None


def fixed_form(at: Expr, variables: Collection[int], inner: set[int]) -> Affine | None:
    """``at`` as a map of ``variables`` whose rest is known before the nest; None for others."""
    form = affine(at, variables)
    if form is None or uses(form.rest, inner):
        return None
    return None if any(isinstance(e, Load) for e in walk_expr(form.rest)) else form
