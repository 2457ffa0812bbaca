"""Owns elementwise nests: their loops, the bounds test before them, shared values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileops.codegen.cpu.clips import Clip, clip_of
from tileops.codegen.cpu.control import EmitBody
from tileops.codegen.cpu.expressions import index, is_safe, value
from tileops.codegen.cpu.scalar_types import computing
from tileops.codegen.cpu.state import LaunchState, Proven
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Region, Var
from tileops.ir.stmt import Atomic, Bind, Body, For, Parallel, Stmt, Store, While
from tileops.ir.walk import exprs, loads, walk, walk_expr, written_buffers
from tileops.passes.analyze_index import affine, needs_guard, uses


@dataclass(frozen=True)
class Nest:
    """A perfect nest of parallel loops, outermost first, with its body."""

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: Body


@dataclass(frozen=True)
class Access:
    """One element access of a nest's body: the buffer and its indices."""

    buffer: Buffer
    indices: tuple[Expr, ...]


def flatten(stmt: Parallel) -> Nest:
    """The nest that ``stmt`` heads, parallel loops directly inside it included."""
    variables, extents, body = stmt.vars, stmt.extents, stmt.body
    while len(body) == 1 and isinstance(body[0], Parallel):
        inner = body[0]
        variables, extents, body = variables + inner.vars, extents + inner.extents, inner.body
    return Nest(variables, extents, body)


def emit_parallel(state: LaunchState, stmt: Parallel, emit_body: EmitBody) -> None:
    """The loops of a nest; twice where a test before them can show that every element exists.

    The second time the loops are clipped to the stores that land, where that can be told: loops
    without tests inside become vector code, and a tile that is mostly outside costs nothing there.
    """
    w, nest = state.writer, ordered(flatten(stmt))
    ends = []
    with w.block(), state.scope():
        for var, extent in zip(nest.vars, nest.extents, strict=True):
            ends.append(value(state, extent))
            state.ranges = state.ranges.with_span(var, fold.const(0, var.dtype), extent)
            state.declare(var, state.ranges.of(var))
        tests, proven = box_tests(state, nest)
        if not tests:
            _emit_loops(state, nest, ends, Clip(), emit_body)
            return
        with w.block(f"if ({' && '.join(tests)})"), state.scope():
            state.proven = state.proven | proven
            _emit_loops(state, nest, ends, Clip(), emit_body)
        inner = {v.id for s in walk(nest.body) for v in _defined(s)}
        clip = clip_of(state, nest.vars, nest.body, inner)
        head = f"else if ({' && '.join(clip.tests)})" if clip.tests else "else"
        with w.block(head), state.scope():
            state.proven = state.proven | clip.proven
            _emit_loops(state, nest, ends, clip, emit_body)


def accesses(body: Body) -> Iterator[Access]:
    """Every access to an element of a global buffer in a nest's body."""
    for stmt in walk(body):
        for load in loads(stmt):
            yield Access(load.buffer, load.indices)
        if isinstance(stmt, Store):
            yield Access(stmt.buffer, stmt.indices)
        if isinstance(stmt, Atomic):
            yield Access(stmt.dst.buffer, stmt.dst.starts)
            if isinstance(stmt.value, Region):
                yield Access(stmt.value.buffer, stmt.value.starts)


def ordered(nest: Nest) -> Nest:
    """The nest with the loop innermost along which most accesses walk through memory in order."""
    if len(nest.vars) == 1:
        return nest
    score = {v.id: 0 for v in nest.vars}
    for access in accesses(nest.body):
        if not access.indices:
            continue
        last = affine(access.indices[-1], score)
        for v in nest.vars:
            if last is not None and last.coefficient(v.id) == 1:
                score[v.id] += 1
    best = max(range(len(nest.vars)), key=lambda n: (score[nest.vars[n].id], n))
    order = [n for n in range(len(nest.vars)) if n != best] + [best]
    return Nest(
        tuple(nest.vars[n] for n in order), tuple(nest.extents[n] for n in order), nest.body
    )


# -- the test before the loops ---------------------------------------------------------------------


def box_tests(state: LaunchState, nest: Nest) -> tuple[list[str], frozenset[Proven]]:
    """Conditions under which no access of the nest leaves its buffer, and what they prove."""
    spans = _loop_spans(state, nest)
    inner = {v.id for s in walk(nest.body) for v in _defined(s)}
    mapped = {v.id for v, _, _ in spans}
    tests: dict[str, None] = {}
    proven = set()
    ranges = state.ranges
    for var, start, stop in spans:
        ranges = ranges.with_span(var, start, stop)
    for access in accesses(nest.body):
        if access.buffer.is_on_chip:
            continue
        bounds = state.place(access.buffer).extents
        for at, extent, bound in zip(access.indices, access.buffer.shape, bounds, strict=True):
            lower, upper = needs_guard(at, extent, ranges)
            if not (lower or upper):
                continue
            corners = _corners(state, at, spans, mapped, inner)
            if corners is None:
                continue
            if lower:
                tests[f"{corners[0]} >= 0"] = None
                proven.add(Proven(at, extent, "lower"))
            if upper:
                tests[f"{corners[1]} < {bound}"] = None
                proven.add(Proven(at, extent, "upper"))
    return list(tests), frozenset(proven)


def _loop_spans(state: LaunchState, nest: Nest) -> list[tuple[Var, Expr, Expr]]:
    """Variables with bounds known before the nest: its own, and of inner loops with fixed ones."""
    spans: list[tuple[Var, Expr, Expr]] = [
        (v, fold.const(0, v.dtype), e) for v, e in zip(nest.vars, nest.extents, strict=True)
    ]
    fixed = state.names.keys() - {v.id for v in nest.vars}
    for stmt in walk(nest.body):
        if isinstance(stmt, For) and all(_is_fixed(e, fixed) for e in (stmt.start, stmt.stop)):
            spans.append((stmt.var, stmt.start, stmt.stop))
    return spans


def _is_fixed(expr: Expr, names: set[int]) -> bool:
    return all(
        not isinstance(e, Load) and (not isinstance(e, Var) or e.id in names)
        for e in walk_expr(expr)
    )


def _defined(stmt: Stmt) -> tuple[Var, ...]:
    match stmt:
        case Bind(var=v) | For(var=v):
            return (v,)
        case Atomic(result=r) if r is not None:
            return (r,)
        case _:
            return ()


def _corners(
    state: LaunchState,
    at: Expr,
    spans: list[tuple[Var, Expr, Expr]],
    mapped: set[int],
    inner: set[int],
) -> tuple[str, str] | None:
    """The least and the greatest value of an affine index over the box, as int64 text.

    None for others.
    """
    form = affine(at, mapped)
    if (
        form is None
        or uses(form.rest, inner)
        or any(isinstance(e, Load) for e in walk_expr(form.rest))
    ):
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
    state: LaunchState, nest: Nest, ends: list[str], clip: Clip, emit_body: EmitBody
) -> None:
    shared = shareable_loads(state, nest)
    _emit_level(state, nest, ends, clip, shared, 0, emit_body)


def _emit_level(
    state: LaunchState,
    nest: Nest,
    ends: list[str],
    clip: Clip,
    shared: dict[Load, int],
    level: int,
    emit_body: EmitBody,
) -> None:
    w = state.writer
    for load, at in shared.items():
        if at == level:
            name = w.fresh("h")
            w.line(f"const {computing(load.dtype)} {name} = {value(state, load)};")
            state.hoisted[load] = name
    if level == len(nest.vars):
        emit_body(state, nest.body)
        return
    var = nest.vars[level]
    name, kind = state.name(var), computing(var.dtype)
    start, stop = _clipped(state, clip, level, kind, ends[level])
    if level == len(nest.vars) - 1 and is_independent(nest):
        w.flush_left("#pragma GCC ivdep")
    with w.block(f"for ({kind} {name} = {start}; {name} < {stop}; ++{name})"):
        _emit_level(state, nest, ends, clip, shared, level + 1, emit_body)


def _clipped(state: LaunchState, clip: Clip, level: int, kind: str, end: str) -> tuple[str, str]:
    """First value of a loop and the one after its last, within 0 and ``end``."""
    w, start, stop = state.writer, "0", end
    for is_low in (True, False):
        for limit in clip.at(level, is_low=is_low):
            name = w.fresh("low" if is_low else "high")
            w.line(f"const {kind} {name} = static_cast<{kind}>(clamp64({limit}, {start}, {stop}));")
            start, stop = (name, stop) if is_low else (start, name)
    return start, stop


def shareable_loads(state: LaunchState, nest: Nest) -> dict[Load, int]:
    """Loads whose value no iteration of the innermost loop changes, with the level to load at."""
    written = {state.root(b) for s in walk(nest.body) for b in written_buffers(s)}
    if any(isinstance(s, Atomic) for s in walk(nest.body)):
        return {}
    inner = {v.id for s in walk(nest.body) for v in _defined(s)}
    levels = {v.id: n + 1 for n, v in enumerate(nest.vars)}
    found: dict[Load, int] = {}
    for stmt in walk(nest.body):
        for expr in exprs(stmt):
            for e in walk_expr(expr):
                if not isinstance(e, Load) or state.root(e.buffer) in written or e in found:
                    continue
                used = {v.id for i in e.indices for v in walk_expr(i) if isinstance(v, Var)}
                nested = {
                    state.root(x.buffer)
                    for i in e.indices
                    for x in walk_expr(i)
                    if isinstance(x, Load)
                }
                if used & inner or nested & written or not is_safe(state, e):
                    continue
                level = max((levels.get(v, 0) for v in used), default=0)
                if level < len(nest.vars):
                    found[e] = level
    return dict(sorted(found.items(), key=lambda item: item[1]))


def is_independent(nest: Nest) -> bool:
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
