"""Which sizes decide whether the rows of tensors begin at multiples of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tileops.ir.expr import Buffer, Var
from tileops.ir.program import Program
from tileops.ir.walk import read_buffers, view_roots, walk, written_buffers


def address_sizes(program: Program) -> frozenset[int]:
    """Ids of the run-time sizes that the *fast* kernel assumes to be divisible by 16.

    The call path checks them: the factors of strides (and of a one-dimensional extent, whose mask
    cuts vectors) that are products of run-time sizes alone, and strides that are such sizes.
    Tensors that only foreign kernels touch have no part in it: each of their arguments has facts
    of its own.
    """
    dynamic = {s.var.id for s in program.sizes if s.kind == "dynamic"}
    found: set[int] = set()
    for buffer in _touched_by_tiles(program):
        shape = buffer.shape
        for start in range(1 if len(shape) > 1 else 0, len(shape)):
            factors = {e.id for e in shape[start:] if isinstance(e, Var)} & dynamic
            if len(factors) == len(set(shape[start:])):
                found |= factors
        found |= {e.id for e in buffer.strides or () if isinstance(e, Var) and e.id in dynamic}
    return frozenset(found)


def _touched_by_tiles(program: Program) -> Iterator[Buffer]:
    """The tensors and workspaces; beside foreign kernels those that tile launches touch."""
    touched: set[int] = set()
    for launch in program.launches if program.externs else ():
        roots = view_roots(launch.body)
        for stmt in walk(launch.body):
            names = {b.id for b in (*read_buffers(stmt), *written_buffers(stmt))}
            touched |= names | {roots[n].id for n in names if n in roots}
    for buffer in (*(t.buffer for t in program.tensors()), *program.workspaces):
        if not program.externs or buffer.id in touched:
            yield buffer
