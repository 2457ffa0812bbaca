"""What a body writes, views included."""

from __future__ import annotations

import tileops.language as T
from tileops.frontend.trace import trace
from tileops.ir.walk import written_ids


def test_a_write_through_a_chain_of_views_writes_the_tensor() -> None:
    def program(A, B):
        A: T.Tensor((4, 8), T.float32)
        B: T.Tensor((4, 8), T.float32)
        with T.Kernel(1) as _:
            flat = T.reshape(A, (32,))
            square = T.reshape(flat, (2, 16))
            for i, j in T.Parallel(2, 16):
                square[i, j] = B[i * 2 + j // 8, j % 8]

    traced = trace(program, name="program", static={}, consts={})
    a, b = (p.buffer.id for p in traced.tensors())
    written = written_ids(traced.launches)
    assert a in written
    assert b not in written
