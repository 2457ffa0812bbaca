"""The program behind rotary position embedding: pairs of a head's elements, turned by an angle."""

from __future__ import annotations

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.programs.rows import DTYPES, accumulator

X_DTYPE = T.DTypeVar("X_dtype", *DTYPES)
ANGLE_DTYPE = T.DTypeVar("angle_dtype", *DTYPES)
ELEMENTS = 2048  # of a block


@T.macro
def rotate(X, cos, sin, Y, batch, head, first, rows, per_batch, interleaved, transposed):
    """Turn ``rows`` positions of one head from ``first`` on.

    The partner of an element is half a head away, or beside it if ``interleaved``. The transposed
    rotation is that of the gradient: each sine then belongs to the partner.
    """
    D = X.shape[3]
    acc = accumulator(X.dtype)
    angles = batch if per_batch else 0
    for i, j in T.Parallel(rows, D):
        s = first + i
        if s < X.shape[2]:
            partner = j ^ 1 if interleaved else (j + D // 2) % D
            is_first = j % 2 == 0 if interleaved else j < D // 2
            sine = T.cast(sin[angles, s, partner if transposed else j], acc)
            other = T.cast(X[batch, head, s, partner], acc) * sine
            kept = T.cast(X[batch, head, s, j], acc) * T.cast(cos[angles, s, j], acc)
            is_less = is_first if not transposed else is_first == False  # noqa: E712
            Y[batch, head, s, j] = T.cast(kept + T.if_then_else(is_less, -other, other), X.dtype)


@jit(name=f"{NAMESPACE}::rope")
def rope(
    Q, K, cos, sin,
    per_batch: bool = False, interleaved: bool = False, transposed: bool = False,
):  # fmt: skip
    B, H, G, S = T.dynamic("B, H, G, S")
    D = T.const("D")
    Q_b, Q_h, Q_s, K_b, K_h, K_s = T.dynamic("Q_b, Q_h, Q_s, K_b, K_h, K_s", T.int64)
    Q: T.StridedTensor((B, H, S, D), (Q_b, Q_h, Q_s, 1), X_DTYPE)
    K: T.StridedTensor((B, G, S, D), (K_b, K_h, K_s, 1), X_DTYPE)
    cos: T.Tensor((B if per_batch else 1, S, D), ANGLE_DTYPE)
    sin: T.Tensor((B if per_batch else 1, S, D), ANGLE_DTYPE)
    Q_out = T.empty((B, H, S, D), X_DTYPE)
    K_out = T.empty((B, G, S, D), X_DTYPE)
    rows = max(1, ELEMENTS // D) if isinstance(D, int) else 16
    with T.Kernel(T.ceildiv(S, rows), H, B, threads=256) as (part, head, batch):
        rotate(
            Q, cos, sin, Q_out, batch, head, part * rows, rows, per_batch, interleaved, transposed
        )
    with T.Kernel(T.ceildiv(S, rows), G, B, threads=256) as (part, head, batch):
        rotate(
            K, cos, sin, K_out, batch, head, part * rows, rows, per_batch, interleaved, transposed
        )
    return Q_out, K_out
