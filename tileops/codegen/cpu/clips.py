"""Clips: the part of a nest's loops outside which every store is outside its buffer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tileops.codegen.cpu.expressions import index
from tileops.codegen.cpu.state import Condition, LaunchState
from tileops.ir.expr import Expr, Load, Var
from tileops.ir.stmt import Assume, Bind, Body, For, If, Store
from tileops.ir.walk import walk, walk_expr
from tileops.passes.analyze_index import Affine, affine, uses


@dataclass(frozen=True)
class Clip:
    """Limits of a nest's loops, tests before them, and what holds inside.

    ``limits`` are int64 texts in terms of the loops around, by a loop's level and whether they are
    of its first iteration or of the one after its last.
    """

    limits: Mapping[tuple[int, bool], list[str]] = field(default_factory=dict)
    tests: Sequence[str] = ()
    proven: frozenset[Condition] = frozenset()


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
    needed = [{c: c for c in state.conditions(s.buffer, s.indices, state.ranges)} for s in stores]
    by_last: dict[Condition, Condition] = {}
    for of_store in needed:
        by_last |= of_store
    limits: dict[tuple[int, bool], list[str]] = {}
    tests, proven = [], set()
    for condition in by_last.values():
        split = _split(state, variables, condition.index, inner)
        if split is None or not all(condition in of_store for of_store in needed):
            continue
        proven.add(condition)
        level, factor, rest = split
        if level < 0:
            tests.append(condition.test(rest))
            continue
        bound = "0" if condition.is_lower else condition.bound
        limit = f"{bound} - ({rest})" if factor == 1 else f"({rest}) - {bound} + 1"
        limits.setdefault((level, condition.is_lower is (factor == 1)), []).append(limit)
    return Clip(limits, tests, frozenset(proven))


def _split(
    state: LaunchState, variables: tuple[Var, ...], at: Expr, inner: set[int]
) -> tuple[int, int, str] | None:
    """The level of the innermost loop that moves ``at`` (-1: none), its factor, the rest's text.

    None for an index that is not of this form, with a factor of 1 or -1.
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
