"""What nests read from the slots of rings: tiles of products, and vectors that ride beside one.

Of a vector they read one value a column. In attention backward the sums of a tile's rows come with
the tile: no thread waits for memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from tileops.ir.expr import Buffer
from tileops.ir.schedule import Descriptor
from tileops.ir.stmt import Body, Copy, For, Gemm, Parallel, Stmt
from tileops.ir.walk import accesses, read_buffers, walk, written_buffers
from tileops.passes.hopper.boxes import Boxes
from tileops.passes.hopper.unfit import Unfit

Span = tuple[int, int]


def find_riders(
    body: Body,
    boxes: Boxes,
    fed: Container[int],
    is_loadable: Callable[[Copy], bool],
) -> dict[int, Descriptor]:
    """The vectors that ride, by buffer, with the box of the one copy that fills each.

    ``fed`` are the matrices that rings hold, ``is_loadable`` tells what the load role can copy.
    """
    every = list(walk(body))
    found: dict[int, Descriptor] = {}
    for loop in every:
        if not isinstance(loop, For):
            continue
        filled = {s.dst.buffer.id: s.dst.buffer for s in _copies(loop.body)}
        spans = [span_of(loop.body, b) for n, b in filled.items() if n in fed]
        for copy in _copies(loop.body):
            own = span_of(loop.body, copy.dst.buffer)
            if own is None or not any(s and covers(s, own) for s in spans):
                continue
            if is_loadable(copy) and _is_read_by_columns(copy, loop.body, every):
                try:
                    found[copy.dst.buffer.id] = boxes.rider(copy)
                except Unfit:
                    continue  # it is loaded into registers
    return found


def is_read_by_elements(tile: Buffer, body: Body) -> bool:
    """True if nests read a tile of two dimensions, each element at the variables of the nest.

    Products may read it as well.
    """
    every = list(walk(body))
    nests = [s for s in every if isinstance(s, Parallel) and _reads(s, tile)]
    inside = [s for nest in nests for s in walk((nest,))]
    outside = [s for s in every if tile in read_buffers(s) and not any(s is x for x in inside)]
    if len(tile.shape) != 2 or not all(isinstance(s, Gemm) for s in outside):
        return False
    return all(_is_by_elements(nest.flattened(), tile) for nest in nests)


def _is_by_elements(nest: Parallel, tile: Buffer) -> bool:
    found = [(b, indices) for s in walk(nest.body) for b, indices in accesses(s)]
    at_nest = all(indices == nest.vars for buffer, indices in found if buffer == tile)
    return at_nest and nest.extents == tile.shape


def span_of(body: Body, buffer: Buffer) -> Span | None:
    """The places in ``body`` of the first and the last statement that reads a buffer."""
    uses = [n for n, s in enumerate(body) if any(buffer in read_buffers(x) for x in walk((s,)))]
    return (uses[0], uses[-1]) if uses else None


def covers(outer: Span, inner: Span) -> bool:
    """True if what is read in ``inner`` is there for as long as what is read in ``outer``."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _copies(body: Body) -> Iterator[Copy]:
    return (s for s in body if isinstance(s, Copy) and s.dst.buffer.is_on_chip)


def _is_read_by_columns(copy: Copy, body: Body, every: list[Stmt]) -> bool:
    """True if nests of this list alone read the vector, each at the variable of its columns."""
    vector = copy.dst.buffer
    if len(vector.shape) != 1 or sum(vector in written_buffers(s) for s in every) != 1:
        return False
    nests = [s for s in body if isinstance(s, Parallel) and _reads(s, vector)]
    after = body.index(copy)
    if any(body.index(nest) < after for nest in nests):
        return False
    inside = [s for nest in nests for s in walk((nest,))]
    if sum(vector in read_buffers(s) for s in every) != sum(
        vector in read_buffers(s) for s in inside
    ):
        return False
    return all(_is_by_columns(nest.flattened(), vector) for nest in nests)


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    return any(buffer in read_buffers(s) for s in walk((stmt,)))


def _is_by_columns(nest: Parallel, vector: Buffer) -> bool:
    *_, columns = nest.vars
    if len(nest.vars) != 2 or nest.extents[-1] != vector.shape[0]:
        return False
    for stmt in walk(nest.body):
        if any(not b.is_on_chip for b in read_buffers(stmt)):
            return False
        for buffer, indices in accesses(stmt):
            if buffer == vector and indices != (columns,):
                return False
    return True
