"""The programs behind rotary position embedding: pairs of a head's elements, turned by an angle."""

from __future__ import annotations

from typing import Any

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.arguments import is_one_of
from tileops.ops.programs import norms
from tileops.ops.programs.rows import DTYPES, accumulator

X_DTYPE = T.DTypeVar("X_dtype", *DTYPES)
ANGLE_DTYPE = T.DTypeVar("angle_dtype", *DTYPES)
ELEMENTS = 2048  # of a block


def rows_of(columns: object) -> int:
    """Positions of a block, for heads of so many elements."""
    return max(1, ELEMENTS // columns) if isinstance(columns, int) else 16


def partner_of(j: Any, columns: int, interleaved: bool) -> Any:
    """The element that is turned with element ``j`` of a head."""
    return j ^ 1 if interleaved else (j + columns // 2) % columns


def is_first(j: Any, columns: int, interleaved: bool) -> Any:
    """Whether element ``j`` is the first of its pair."""
    return j % 2 == 0 if interleaved else j < columns // 2


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
            partner = partner_of(j, D, interleaved)
            sine = T.cast(sin[angles, s, partner if transposed else j], acc)
            other = T.cast(X[batch, head, s, partner], acc) * sine
            kept = T.cast(X[batch, head, s, j], acc) * T.cast(cos[angles, s, j], acc)
            is_less = is_first(j, D, interleaved) != transposed
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
    rows = rows_of(D)
    with T.Kernel(T.ceildiv(S, rows), H, B, threads=256) as (part, head, batch):
        rotate(
            Q, cos, sin, Q_out, batch, head, part * rows, rows, per_batch, interleaved, transposed
        )
    with T.Kernel(T.ceildiv(S, rows), G, B, threads=256) as (part, head, batch):
        rotate(
            K, cos, sin, K_out, batch, head, part * rows, rows, per_batch, interleaved, transposed
        )
    return Q_out, K_out


@T.macro
def norm_and_rotate(
    X, W, cos, sin, Y, batch, head, first, rows, eps, offset, rounding, per_batch, interleaved
):
    """Turn the norms of ``rows`` positions of one head from ``first`` on."""
    D = X.shape[3]
    angles = batch if per_batch else 0
    x = T.alloc_fragment((rows, D), accumulator(X.dtype))
    scale = T.alloc_fragment((rows,), x.dtype)
    norm = T.alloc_shared((rows, D), X.dtype)
    T.copy(X[batch, head, first, 0], x)
    norms.standardise(x, scale, eps, False)
    norms.weigh(x, W, None, 0, offset, rounding, X.dtype)
    T.copy(x, norm)
    for i, j in T.Parallel(rows, D):
        s = first + i
        if s < X.shape[2]:
            sine = T.cast(sin[angles, s, j], x.dtype)
            other = T.cast(norm[i, partner_of(j, D, interleaved)], x.dtype) * sine
            kept = T.cast(norm[i, j], x.dtype) * T.cast(cos[angles, s, j], x.dtype)
            turned = kept + T.if_then_else(is_first(j, D, interleaved), -other, other)
            Y[batch, head, s, j] = T.cast(turned, X.dtype)


@jit(name=f"{NAMESPACE}::qk_norm_rope")
def qk_norm_rope(
    Q, K, cos, sin, Q_weight=None, K_weight=None, eps: T.float64 = 1e-6, offset: T.float64 = 0.0,
    rounding: str = norms.TORCH, per_batch: bool = False, interleaved: bool = False,
):  # fmt: skip
    B, H, G, S = T.dynamic("B, H, G, S")
    D = T.const("D")
    Q_b, Q_h, Q_s, K_b, K_h, K_s = T.dynamic("Q_b, Q_h, Q_s, K_b, K_h, K_s", T.int64)
    Q: T.StridedTensor((B, H, S, D), (Q_b, Q_h, Q_s, 1), X_DTYPE)
    K: T.StridedTensor((B, G, S, D), (K_b, K_h, K_s, 1), X_DTYPE)
    cos: T.Tensor((B if per_batch else 1, S, D), ANGLE_DTYPE)
    sin: T.Tensor((B if per_batch else 1, S, D), ANGLE_DTYPE)
    Q_weight: T.Tensor((D,), norms.W_DTYPE)
    K_weight: T.Tensor((D,), norms.W_DTYPE)
    is_one_of("qk_norm_rope", "rounding", rounding, norms.ROUNDINGS)
    Q_out = T.empty((B, H, S, D), X_DTYPE)
    K_out = T.empty((B, G, S, D), X_DTYPE)
    rows = rows_of(D)
    with T.Kernel(T.ceildiv(S, rows), H, B, threads=256) as (part, head, batch):
        norm_and_rotate(
            Q, Q_weight, cos, sin, Q_out, batch, head, part * rows, rows,
            eps, offset, rounding, per_batch, interleaved,
        )  # fmt: skip
    with T.Kernel(T.ceildiv(S, rows), G, B, threads=256) as (part, head, batch):
        norm_and_rotate(
            K, K_weight, cos, sin, K_out, batch, head, part * rows, rows,
            eps, offset, rounding, per_batch, interleaved,
        )  # fmt: skip
    return Q_out, K_out
