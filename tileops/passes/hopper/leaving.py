"""Tiles that leave a launch by TMA: copies to tensors, and additions in loops of products."""

from __future__ import annotations

import math

from tileops.ir.expr import Buffer
from tileops.ir.schedule import PATTERN_ROWS, Added, Staged
from tileops.ir.stmt import Body, Copy, If, Stmt
from tileops.ir.walk import read_buffers, view_roots, walk, written_buffers
from tileops.passes.hopper.added_boxes import added_box
from tileops.passes.hopper.boxes import Boxes
from tileops.passes.hopper.unfit import Unfit


class Leaving:
    """What becomes of the statements by which tiles leave a launch. TMA stores in its own time."""

    def __init__(self, body: Body, boxes: Boxes) -> None:
        self._every, self._boxes = list(walk(body)), boxes
        self._roots = view_roots(body)

    def copy(self, copy: Copy) -> Stmt:
        """A copy from a tile to a tensor: through shared memory where it is a box of rows."""
        try:
            descriptor = self._boxes.stored(copy)
        except Unfit:
            return copy
        if math.prod(descriptor.box[:-1]) < PATTERN_ROWS:  # a vector, say
            return copy
        if not copy.src.is_whole() or not self._is_written_once(descriptor.tensor):
            return copy
        return Staged(copy.src, copy.dst, descriptor, **copy.provenance)

    def addition(self, stmt: Stmt) -> Stmt:
        """What adds a tile to a tensor: by TMA, where nothing else of the launch touches that."""
        parts = added_box(stmt)
        if parts is None:
            return stmt
        tile, box = parts
        try:
            descriptor = self._boxes.stored(Copy(tile, box, **stmt.provenance))
        except Unfit:
            return stmt
        own = {id(s) for s in walk((stmt,))}
        others = [s for s in self._every if id(s) not in own]
        touched = {b for s in others for b in (*read_buffers(s), *written_buffers(s))}
        if box.buffer.id in {self._root(b) for b in touched}:
            return stmt
        return Added(tile, box, descriptor, **stmt.provenance)

    def _root(self, buffer: Buffer) -> int:
        return self._roots.get(buffer.id, buffer).id

    def _is_written_once(self, tensor: Buffer) -> bool:
        """True if one statement, in no loop, writes the tensor, and none reads it."""
        loops = [s for s in self._every if s.BODIES and not isinstance(s, If)]
        if any(tensor in written_buffers(s) for loop in loops for s in walk((loop,))):
            return False
        read = {self._root(b) for s in self._every for b in read_buffers(s)}
        writers = [
            s for s in self._every if tensor.id in {self._root(b) for b in written_buffers(s)}
        ]
        return tensor.id not in read and len(writers) == 1
