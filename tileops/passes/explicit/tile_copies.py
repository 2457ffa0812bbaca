"""Copies that threads share out among themselves, as the copy of a tile that they are together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tileops.ir import explicit, fold
from tileops.ir.expr import Binary, Expr, Load, Region, Var
from tileops.ir.node import Body, Stmt
from tileops.ir.program import const_value
from tileops.ir.stmt import Bind, Copy, For, Parallel, Store
from tileops.ir.walk import map_children, walk, walk_expr
from tileops.passes.analyze_index import Affine, affine

# Digits that the numbers of a nest's points are made of, by id: how many values each has.
Digits = dict[int, int]


def tile_copies(stmt: Stmt) -> tuple[Copy, ...] | None:
    """The copies that a nest of copies of elements (cp.async) makes; None for another statement."""
    if not any(isinstance(s, For) and explicit.CP_ASYNC in s.hints for s in walk((stmt,))):
        return None
    found: list[Copy] = []
    for store, loops, known in _stores((stmt,), {}, {}):
        copy = None if store is None else _tile(store, loops, known)
        if copy is None:
            return None
        found.append(copy)
    return tuple(found)


def _stores(
    body: Body, loops: Mapping[int, int], known: Mapping[int, Expr]
) -> Iterator[tuple[Store | None, Mapping[int, int], Mapping[int, Expr]]]:
    """The stores of a nest with the loops around them and the values of names; None for others."""
    names = dict(known)
    for stmt in body:
        match stmt:
            case Bind(var=var, value=value):
                names[var.id] = fold.substitute(value, names)
            case Store():
                yield stmt, loops, dict(names)
            case For(var=var, start=start, stop=stop) if const_value(start) == 0:
                yield from _stores(stmt.body, {**loops, var.id: const_value(stop) or 0}, names)
            case Parallel(vars=vars_, extents=extents):
                sizes = {v.id: const_value(e) or 0 for v, e in zip(vars_, extents, strict=True)}
                yield from _stores(stmt.body, {**loops, **sizes}, names)
            case _:
                yield None, loops, names


@dataclass(frozen=True)
class _Split:
    """A variable as ``high * base + low``."""

    base: int
    high: Var
    low: Var


def _tile(store: Store, loops: Mapping[int, int], known: Mapping[int, Expr]) -> Copy | None:
    value = store.value
    if not isinstance(value, Load) or value.buffer.is_on_chip or not all(loops.values()):
        return None
    to = tuple(fold.substitute(e, known) for e in store.indices)
    origin = tuple(fold.substitute(e, known) for e in value.indices)
    splits = _splits((*to, *origin), loops)
    if splits is None:
        return None
    digits: Digits = {n: size for n, size in loops.items() if n not in splits}
    for n, split in splits.items():
        digits |= {split.high.id: loops[n] // split.base, split.low.id: split.base}
    forms = [affine(_in_digits(e, splits), digits) for e in (*to, *origin)]
    if any(form is None for form in forms):
        return None
    targets, sources = forms[: len(to)], forms[len(to) :]
    return _copy(store, value, targets, sources, digits)  # type: ignore[arg-type]


def _copy(
    store: Store, load: Load, targets: list[Affine], sources: list[Affine], digits: Digits
) -> Copy | None:
    sizes = [_size(form, digits) for form in targets]
    used = [n for form in targets for n, _ in form.coefficients if digits[n] > 1]
    if None in sizes or sorted(used) != sorted(n for n, size in digits.items() if size > 1):
        return None  # not a box, or an element is written twice
    walked = [_moving(form, digits) for form in targets]
    moving = [_moving(form, digits) for form in sources]
    if [m for m in walked if m] != [m for m in moving if m]:
        return None  # the source is read in another order
    by_form = dict(zip(walked, sizes, strict=True))
    one = fold.const(1)
    extents = tuple(fold.const(by_form[m] or 1) if m else one for m in moving)
    return Copy(
        Region(load.buffer, tuple(form.rest for form in sources), extents),
        Region(
            store.buffer,
            tuple(form.rest for form in targets),
            tuple(fold.const(size or 1) for size in sizes),
        ),
        **store.provenance,
    )


def _moving(form: Affine, digits: Digits) -> tuple[tuple[int, int], ...]:
    return tuple((n, c) for n, c in form.coefficients if digits[n] > 1)


def _size(form: Affine, digits: Digits) -> int | None:
    """How many neighbours an index runs through, each once; None where it leaves some out."""
    size = 1
    for n, factor in sorted(_moving(form, digits), key=lambda item: item[1]):
        if factor != size:
            return None
        size *= digits[n]
    return size


def _splits(indices: tuple[Expr, ...], loops: Mapping[int, int]) -> dict[int, _Split] | None:
    """The variables that are divided, each by one number; None for another division."""
    found: dict[int, _Split] = {}
    number = -1
    for e in (e for index in indices for e in walk_expr(index)):
        if not (isinstance(e, Binary) and e.op in ("floordiv", "floormod")):
            continue
        if not any(isinstance(x, Var) and x.id in loops for x in walk_expr(e)):
            continue
        form, base = affine(e.a, loops), const_value(e.b)
        if form is None or not base or base < 2 or len(form.coefficients) != 1:
            return None
        (var, factor) = form.coefficients[0]
        rest = const_value(form.rest)
        if factor != 1 or rest is None or rest % base or loops[var] % base:
            return None
        if var not in found:
            high, low = (Var(e.dtype, number - side, name) for side, name in enumerate("hl"))
            found[var] = _Split(base, high, low)
            number -= 2
        elif found[var].base != base:
            return None
    return found


def _in_digits(expr: Expr, splits: Mapping[int, _Split]) -> Expr:
    match expr:
        case Binary(op="floordiv" | "floormod" as op, a=a, b=b):
            form = affine(a, splits)
            if form is not None and form.coefficients:
                split = splits[form.coefficients[0][0]]
                if op == "floormod":
                    return split.low
                return fold.add(split.high, fold.const((const_value(form.rest) or 0) // split.base))
            return fold.binary(op, _in_digits(a, splits), _in_digits(b, splits))
        case Var(id=n) if n in splits:
            split = splits[n]
            return fold.add(fold.mul(split.high, fold.const(split.base)), split.low)
    return map_children(expr, lambda e: _in_digits(e, splits))
