"""Sums of fp8 products in float32: the tensor cores sum those of one tile, the math role the rest.

The tensor cores keep 13 fraction bits of a sum of fp8 products, of which each further instruction
cuts some. So a product starts from zero, and what it gives is added to the accumulator in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileops.ir import fold
from tileops.ir.expr import Binary, Buffer, Load, Region, Var
from tileops.ir.program import const_value
from tileops.ir.schedule import Issue, RingStep, Settle
from tileops.ir.stmt import Alloc, Body, Parallel, Stmt, Store
from tileops.ir.walk import sub_bodies, walk, with_bodies
from tileops.passes.hopper.split_columns import split_columns

_MOST_COLUMNS = 128  # of a part: what a thread can hold beside an accumulator of 256 columns


def is_promoted(gemm: Issue) -> bool:
    """True for a product of fp8 that is added to what its accumulator has."""
    return gemm.a.dtype.is_fp8 and const_value(gemm.clear) != 1


def promote_sums(math: Body, ids: Iterator[int]) -> Body:
    """The math role with such products from zero.

    Those that follow each other into one accumulator are one sum.
    """
    parts: dict[tuple[int, ...], Buffer] = {}
    body = _promoted(math, parts, ids)
    return (*(Alloc(part) for part in parts.values()), *body)


def narrow_sums(math: Body, ids: Iterator[int]) -> Body:
    """The math role with accumulators of such products in parts that leave registers for them.

    Unfit where one is needed whole.
    """
    sums = {s.c.buffer for s in walk(math) if isinstance(s, Issue) and is_promoted(s)}
    for buffer in sorted(sums, key=lambda b: b.id):
        if (buffer.static_shape() or (0,))[-1] > _MOST_COLUMNS:
            math = split_columns(math, buffer, _MOST_COLUMNS, ids)
    return math


def _promoted(body: Body, parts: dict[tuple[int, ...], Buffer], ids: Iterator[int]) -> Body:
    out: list[Stmt] = []
    held: list[Stmt] = []  # a sum that waits until the slots are released
    ended: set[Buffer] = set()  # accumulators whose products have been waited for
    for place, stmt in enumerate(body):
        if isinstance(stmt, Settle) and ended.issuperset(stmt.results):
            continue
        if not isinstance(stmt, RingStep):
            out += held
            held = []
        match stmt:
            case Issue() if is_promoted(stmt):
                part = _part(stmt.c.buffer, parts, ids)
                ended.add(stmt.c.buffer)
                begins = not _continues(body[place - 1 : place], stmt)
                clear = fold.const(begins, fold.BOOL)
                out.append(replace(stmt, c=replace(stmt.c, buffer=part), clear=clear))
                if not _continues((stmt,), *body[place + 1 : place + 2]):
                    out.append(Settle(0, (part,), **stmt.provenance))
                    held = [_sum(stmt.c, part, ids, stmt)]
            case Issue():
                ended.discard(stmt.c.buffer)
                out.append(stmt)
            case _:
                inner = tuple(_promoted(b, parts, ids) for b in sub_bodies(stmt))
                out.append(with_bodies(stmt, inner))
    return (*out, *held)


def _continues(before: Body, *after: Stmt) -> bool:
    """True for two promoted products into one accumulator."""
    if not before or not after:
        return False
    both = (before[0], after[0])
    issues = [s for s in both if isinstance(s, Issue) and is_promoted(s)]
    return len(issues) == len(both) and issues[0].c == issues[1].c


def _part(acc: Buffer, parts: dict[tuple[int, ...], Buffer], ids: Iterator[int]) -> Buffer:
    key = acc.static_shape() or ()
    if key not in parts:
        parts[key] = replace(acc, id=next(ids), name="part", scope="fragment")
    return parts[key]


def _sum(c: Region, part: Buffer, ids: Iterator[int], where: Stmt) -> Parallel:
    vars_ = tuple(Var(fold.INT32, next(ids), name) for name in ("i", "j"))
    acc = c.buffer
    value = Binary(acc.dtype, "add", Load(acc.dtype, acc, vars_), Load(acc.dtype, part, vars_))
    return Parallel(
        vars_, acc.shape, (Store(acc, vars_, value, **where.provenance),), **where.provenance
    )
