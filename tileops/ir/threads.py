"""The statement nodes of launches whose statements are of single threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tileops.ir.expr import Var, typed
from tileops.ir.node import Body, Stmt

MOST_THREADS = 1024  # of a block


@dataclass(frozen=True)
class Threads(Stmt):
    """``body`` is run by each of ``count`` threads of the block, which differ in ``var``.

    It is all of its launch. Threads go on independently and wait where a statement says so. Buffers
    of scope local and var are each thread's own, shared ones are the block's; there are no others
    on chip. What a tile operation or a parallel nest does on shared and global buffers is the work
    of the block, shared among its threads. ``reason`` says why the launch is not one of tiles.
    """

    BODIES = ("body",)
    DEFINES = ("var",)
    TEXT = "threads {0.var} in {0.count}: # {0.reason}"

    var: Var
    count: int
    body: Body
    reason: str

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        yield from typed(self.var, "int32", "the index of threads")
        if not 0 < self.count <= MOST_THREADS:
            yield f"{self.count} threads in a block"
