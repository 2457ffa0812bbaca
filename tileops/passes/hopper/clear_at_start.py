"""Products into a tile that each iteration clears at its end: they start from zero instead.

``clear(P); for ...: P += A B; use(P); clear(P)`` is ``for ...: P = A B; use(P)`` where nothing else
reads P.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tileops.dtypes import DType
from tileops.ir import fold
from tileops.ir.expr import Buffer, Const
from tileops.ir.program import const_value
from tileops.ir.stmt import Body, Fill, For, Gemm, If, Stmt
from tileops.ir.walk import read_buffers, walk, written_buffers

_TRUE = fold.const(True, DType("bool"))


def clear_at_start(body: Body) -> Body:
    """A launch's ``body`` with every such loop changed; others stay."""
    return _changed(body, body)


def _changed(body: Body, launch: Body) -> Body:
    out = list(body)
    for place, stmt in enumerate(body):
        match stmt:
            case For():
                inner = _changed(stmt.body, launch)
                for acc in _cleared_last(inner):
                    everywhere, here = _reads(launch, acc), _reads(stmt.body, acc)
                    if everywhere == here and _is_cleared(out[:place], acc):
                        inner = _started(inner, acc)
                out[place] = replace(stmt, body=inner)
            case If():
                then, orelse = _changed(stmt.then, launch), _changed(stmt.orelse, launch)
                out[place] = replace(stmt, then=then, orelse=orelse)
    return tuple(out)


def _cleared_last(body: Body) -> list[Buffer]:
    """The tiles that a loop's body begins to use in a product, and clears when it ends."""
    found = []
    for gemm in body:
        if isinstance(gemm, Gemm) and const_value(gemm.clear) == 0 and gemm.c.is_whole():
            acc = gemm.c.buffer
            touching = [s for s in body if _touches(s, acc)]
            if touching[0] is gemm and _is_clear(touching[-1], acc):
                found.append(acc)
    return found


def _is_cleared(before: Sequence[Stmt], acc: Buffer) -> bool:
    """True if the last of the statements ahead of a loop that use the tile clears it."""
    touching = [s for s in before if _touches(s, acc)]
    return bool(touching) and _is_clear(touching[-1], acc)


def _started(body: Body, acc: Buffer) -> Body:
    """The loop's body with the first product from zero, and without the clearing at its end."""
    first, *_, last = (n for n, s in enumerate(body) if _touches(s, acc))
    gemm = body[first]
    assert isinstance(gemm, Gemm)
    started = replace(gemm, clear=_TRUE)
    return (*body[:first], started, *body[first + 1 : last], *body[last + 1 :])


def _is_clear(stmt: Stmt, acc: Buffer) -> bool:
    if not isinstance(stmt, Fill) or stmt.dst.buffer != acc or not stmt.dst.is_whole():
        return False
    return isinstance(stmt.value, Const) and stmt.value.value == 0


def _touches(stmt: Stmt, acc: Buffer) -> bool:
    return any(acc in (*read_buffers(s), *written_buffers(s)) for s in walk((stmt,)))


def _reads(body: Body, acc: Buffer) -> int:
    return sum(acc in read_buffers(s) for s in walk(body))
