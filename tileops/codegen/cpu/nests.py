"""Elementwise nests: their loops, the bounds test before them, shared values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from tileops.codegen.cpu.clips import Clip, clip_of, fixed_form
from tileops.codegen.cpu.expressions import index, is_safe, value
from tileops.codegen.cpu.scalar_types import computing
from tileops.codegen.cpu.state import Condition, LaunchState
from tileops.ir import fold
from tileops.ir.expr import Expr, Load, Var
from tileops.ir.stmt import Atomic, Bind, Body, For, Parallel, Store, While
from tileops.ir.walk import accesses, loads, walk, walk_expr, written_buffers
from tileops.passes.analyze_index import affine

EmitBody = Callable[[LaunchState, Body], None]


def emit_parallel(state: LaunchState, stmt: Parallel, emit_body: EmitBody) -> None:
    """The loops of a nest; twice where a test before them can show that every element exists.

    The second time the loops are clipped to the stores that land, where that can be told: loops
    without tests inside become vector code, and a tile that is mostly outside costs nothing there.
    """
    w, nest = state.writer, _ordered(stmt.flattened())
    ends = []
    with w.block(), state.scope():
        for var, extent in zip(nest.vars, nest.extents, strict=True):
            ends.append(value(state, extent))
            state.ranges = state.ranges.with_span(var, fold.const(0, var.dtype), extent)
            state.declare(var, state.ranges.of(var))
        tests, proven = _box_tests(state, nest)
        if not tests:
            _emit_loops(state, nest, ends, Clip(), emit_body)
            return
        with w.block(f"if ({' && '.join(tests)})"), state.scope():
            state.proven = state.proven | proven
            _emit_loops(state, nest, ends, Clip(), emit_body)
        clip = clip_of(state, nest.vars, nest.body, _defined_in(nest))
        head = f"else if ({' && '.join(clip.tests)})" if clip.tests else "else"
        with w.block(head), state.scope():
            state.proven = state.proven | clip.proven
            _emit_loops(state, nest, ends, clip, emit_body)


def _ordered(nest: Parallel) -> Parallel:
    """The nest with the loop innermost along which most accesses walk through memory in order."""
    if len(nest.vars) == 1:
        return nest
    score = {v.id: 0 for v in nest.vars}
    for stmt in walk(nest.body):
        for _, indices in accesses(stmt):
            last = affine(indices[-1], score) if indices else None
            for v in nest.vars:
                if last is not None and last.coefficient(v.id) == 1:
                    score[v.id] += 1
    best = max(range(len(nest.vars)), key=lambda n: (score[nest.vars[n].id], n))
    order = [n for n in range(len(nest.vars)) if n != best] + [best]
    vars_, extents = tuple(nest.vars[n] for n in order), tuple(nest.extents[n] for n in order)
    return replace(nest, vars=vars_, extents=extents)


def _defined_in(nest: Parallel) -> set[int]:
    """Ids of the variables that the body of a nest defines."""
    found: set[int] = set()
    for stmt in walk(nest.body):
        match stmt:
            case Bind(var=v) | For(var=v) | Atomic(result=Var() as v):
                found.add(v.id)
    return found


# -- the test before the loops ---------------------------------------------------------------------
def _box_tests(state: LaunchState, nest: Parallel) -> tuple[list[str], frozenset[Condition]]:
    """Conditions under which no access of the nest leaves its buffer, and what they prove."""
    spans = _loop_spans(state, nest)
    inner = _defined_in(nest)
    tests: dict[str, None] = {}
    proven = set()
    ranges = state.ranges
    for var, start, stop in spans:
        ranges = ranges.with_span(var, start, stop)
    for buffer, indices in (found for stmt in walk(nest.body) for found in accesses(stmt)):
        if buffer.is_on_chip:
            continue
        for condition in state.conditions(buffer, indices, ranges):
            corners = _corners(state, condition.index, spans, inner)
            if corners is not None:
                tests[condition.test(corners[0 if condition.is_lower else 1])] = None
                proven.add(condition)
    return list(tests), frozenset(proven)


def _loop_spans(state: LaunchState, nest: Parallel) -> list[tuple[Var, Expr, Expr]]:
    """Variables with bounds known before the nest: its own, and of inner loops with fixed ones."""
    spans: list[tuple[Var, Expr, Expr]] = [
        (v, fold.const(0, v.dtype), e) for v, e in zip(nest.vars, nest.extents, strict=True)
    ]
    fixed = state.names.keys() - {v.id for v in nest.vars}
    for loop in (s for s in walk(nest.body) if isinstance(s, For)):
        parts = [e for bound in (loop.start, loop.stop) for e in walk_expr(bound)]
        inputs = [e for e in parts if isinstance(e, (Load, Var))]
        if all(isinstance(e, Var) and e.id in fixed for e in inputs):
            spans.append((loop.var, loop.start, loop.stop))
    return spans


def _corners(
    state: LaunchState, at: Expr, spans: list[tuple[Var, Expr, Expr]], inner: set[int]
) -> tuple[str, str] | None:
    """The least and greatest value of an affine index over the box as int64 text; else None."""
    form = fixed_form(at, {v.id for v, _, _ in spans}, inner)
    if form is None:
        return None
    least = most = index(state, form.rest)
    for var, start, stop in spans:
        factor = form.coefficient(var.id)
        if factor == 0:
            continue
        first, last = index(state, start), f"({index(state, stop)} - 1)"
        if factor < 0:
            first, last = last, first
        least += f" + {factor} * {first}" if first != "0" else ""
        most += f" + {factor} * {last}" if last != "0" else ""
    return least, most


# -- the loops -------------------------------------------------------------------------------------
def _emit_loops(
    state: LaunchState, nest: Parallel, ends: list[str], clip: Clip, emit_body: EmitBody
) -> None:
    """The loops of a nest, each from 0 to the text of its end, within the limits of ``clip``."""
    w, shared, innermost = state.writer, _shareable_loads(state, nest), len(nest.vars) - 1
    with ExitStack() as blocks:
        for level, (var, end) in enumerate(zip(nest.vars, ends, strict=True)):
            for load in shared.get(level, ()):
                name = w.fresh("h")
                w.line(f"const {computing(load.dtype)} {name} = {value(state, load)};")
                state.hoisted[load] = name
            name, kind = state.name(var), computing(var.dtype)
            first, last = "0", end
            for limit in clip.limits.get((level, True), ()):
                first = _clamped(state, "low", kind, (limit, first, last))
            for limit in clip.limits.get((level, False), ()):
                last = _clamped(state, "high", kind, (limit, first, last))
            if level == innermost and _is_independent(nest):
                w.lines.append("#pragma GCC ivdep")
            head = f"for ({kind} {name} = {first}; {name} < {last}; ++{name})"
            blocks.enter_context(w.block(head))
        emit_body(state, nest.body)


def _clamped(state: LaunchState, stem: str, kind: str, bounds: tuple[str, str, str]) -> str:
    name = state.writer.fresh(stem)
    clamped = f"clamp64({', '.join(bounds)})"
    state.writer.line(f"const {kind} {name} = static_cast<{kind}>({clamped});")
    return name


def _shareable_loads(state: LaunchState, nest: Parallel) -> dict[int, list[Load]]:
    """Loads whose value no iteration of the innermost loop changes, by the level to load at."""
    stmts = list(walk(nest.body))
    if any(isinstance(s, Atomic) for s in stmts):
        return {}
    written = {state.root(b) for s in stmts for b in written_buffers(s)}
    inner = _defined_in(nest)
    levels = {v.id: n + 1 for n, v in enumerate(nest.vars)}
    found: dict[int, list[Load]] = {}
    for load in dict.fromkeys(load for s in stmts for load in loads(s)):
        below = [e for i in load.indices for e in walk_expr(i)]
        read = {state.root(e.buffer) for e in (load, *below) if isinstance(e, Load)}
        used = {e.id for e in below if isinstance(e, Var)}
        if read & written or used & inner or not is_safe(state, load):
            continue
        level = max((levels.get(v, 0) for v in used), default=0)
        if level < len(nest.vars):
            found.setdefault(level, []).append(load)
    return found


def _is_independent(nest: Parallel) -> bool:
    """True if iterations of the innermost loop write different elements and may be interleaved.

    The language promises that no iteration reads what another writes; a store whose place does not
    move with the loop is still run in order.
    """
    last = {nest.vars[-1].id}
    for stmt in walk(nest.body):
        if isinstance(stmt, (Atomic, While)):
            return False
        if isinstance(stmt, Store) and stmt.buffer.scope != "var":
            maps = [affine(i, last) for i in stmt.indices]
            if not any(m is not None and m.coefficients for m in maps):
                return False
    return True
