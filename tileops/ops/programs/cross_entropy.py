"""The programs behind cross entropy: the loss of each row of logits, and its gradient."""

from __future__ import annotations

from typing import Any

import tileops.language as T
from tileops.jit import jit
from tileops.ops import NAMESPACE
from tileops.ops.programs.rows import DTYPES, PART, accumulator
from tileops.ops.programs.softmax import add_part, load_part

X_DTYPE = T.DTypeVar("X_dtype", *DTYPES)
W_DTYPE = T.DTypeVar("W_dtype", *DTYPES)


def capped(x: Any, softcap: Any) -> Any:
    """``x``, within +-``softcap``."""
    return softcap * T.tanh(x / softcap)


def weight_of(W: Any, c: Any, dtype: Any) -> Any:
    """The weight of class ``c``: 1 without weights."""
    return T.cast(1.0, dtype) if W is None else T.cast(W[c], dtype)


@T.macro
def load_logits(X, x, row, first, softcap, has_cap):
    """Load columns from ``first`` on of a row of logits; those past its end are -inf."""
    load_part(X, x, row, first)
    if has_cap:
        for i, j in T.Parallel(1, PART):
            if first + j < X.shape[1]:
                x[i, j] = capped(x[i, j], T.cast(softcap, x.dtype))


@T.macro
def load_base(base: T.Ref, X, row, softcap, has_cap):
    """Set ``base``, from which sums count, to a row's first logit; to 0 if that is not finite."""
    first = T.cast(X[row, 0], base.dtype)
    if has_cap:
        first = capped(first, T.cast(softcap, base.dtype))
    base = T.if_then_else(T.abs(first) < T.infinity(base.dtype), first, T.cast(0.0, base.dtype))


@T.macro
def add_weighted(weighted, weights, x, base, W, first, columns):
    """Add columns from ``first`` on to the sums of weights and of weighted logits less ``base``."""
    for i, j in T.Parallel(1, PART):
        if first + j < columns:
            w = weight_of(W, first + j, x.dtype)
            weighted[i, j] += (x[i, j] - base) * w
            weights[i, j] += w


@T.macro
def load_target(logit: T.Ref, own: T.Ref, X, W, row, t, ignore_index, softcap, has_cap):
    """Set the logit and the weight of a row's target: 0 if it is ignored, NaN if out of range."""
    acc = own.dtype
    if t != ignore_index:
        if (t >= 0) & (t < X.shape[1]):
            logit = T.cast(X[row, t], acc)
            if has_cap:
                logit = capped(logit, T.cast(softcap, acc))
            own = weight_of(W, t, acc)
        else:
            own = T.cast(float("nan"), acc)


@jit(name=f"{NAMESPACE}::cross_entropy", contiguous="copy")
def cross_entropy(
    X, target, W=None, ignore_index: T.int64 = -100, smoothing: T.float64 = 0.0,
    z_loss: T.float64 = 0.0, softcap: T.float64 = 1.0,
    has_cap: bool = False, is_smooth: bool = False,
):  # fmt: skip
    """The loss of each row, the logarithm of its sum, and its weight (0 if it is ignored).

    The logarithm is the sum of two results: where logits are large, one number would round away
    what probabilities near 1 differ in.
    """
    N = T.const("N")
    X: T.Tensor((..., N), X_DTYPE)
    target: T.Tensor((...,), T.int64)
    W: T.Tensor((N,), W_DTYPE)
    acc = accumulator(X.dtype)
    loss, log_sum = T.empty((...,), acc), T.empty((...,), acc)
    log_rest, weight = T.empty((...,), acc), T.empty((...,), acc)
    with T.Kernel(X.shape[0], threads=256) as row:
        x = T.alloc_fragment((1, PART), acc)
        top = T.alloc_fragment((1,), acc)
        total = T.alloc_fragment((1,), acc)
        T.fill(top, -T.infinity(acc))
        T.clear(total)
        weighted = T.alloc_fragment((1, PART), acc)
        weights = T.alloc_fragment((1, PART), acc)
        weighted_sum = T.alloc_fragment((1,), acc)
        weight_sum = T.alloc_fragment((1,), acc)
        T.clear(weighted)
        T.clear(weights)
        base = T.alloc_var(acc, 0.0)
        if is_smooth and N > 0:
            load_base(base, X, row, softcap, has_cap)
        for part in T.serial(T.ceildiv(N, PART)):
            load_logits(X, x, row, part * PART, softcap, has_cap)
            if is_smooth:
                add_weighted(weighted, weights, x, base, W, part * PART, N)
            add_part(x, top, total)
        T.reduce_sum(weighted, weighted_sum, dim=1)
        T.reduce_sum(weights, weight_sum, dim=1)
        logit = T.alloc_var(acc, 0.0)
        own = T.alloc_var(acc, 0.0)
        load_target(logit, own, X, W, row, target[row], ignore_index, softcap, has_cap)
        for i in T.Parallel(1):
            rest = T.log(total[i])
            lse = rest + top[i]
            log_sum[row + i] = lse
            is_finite = T.abs(lse) < T.infinity(acc)
            log_rest[row + i] = T.if_then_else(is_finite, rest - (lse - top[i]), T.cast(0.0, acc))
            value = (rest + (top[i] - logit)) * own
            if is_smooth:
                even = ((rest + (top[i] - base)) * weight_sum[i] - weighted_sum[i]) / N
                value = (1 - T.cast(smoothing, acc)) * value + T.cast(smoothing, acc) * even
            value = value + T.cast(z_loss, acc) * lse * lse
            counts = target[row + i] != ignore_index
            loss[row + i] = T.if_then_else(counts & (own == own), value, own)
            weight[row + i] = own
    return loss, log_sum, log_rest, weight


@T.macro
def sum_weights(W, result, columns):
    """Write the sum of the weights of all classes."""
    sums = T.alloc_fragment((1, PART), result.dtype)
    total = T.alloc_fragment((1,), result.dtype)
    T.clear(sums)
    for part in T.serial(T.ceildiv(columns, PART)):
        for i, j in T.Parallel(1, PART):
            if part * PART + j < columns:
                sums[i, j] += weight_of(W, part * PART + j, result.dtype)
    T.reduce_sum(sums, total, dim=1)
    T.copy(total, result)


@T.macro
def row_terms(
    own: T.Ref, even: T.Ref, of_sum: T.Ref, W, d_loss, d_log_sum, log_sum, weight_sum,
    row, t, columns, ignore_index, smoothing, z_loss, is_smooth,
):  # fmt: skip
    """What the gradient of a row takes of its target, of every class, and of each probability."""
    acc = log_sum.dtype
    s = T.cast(smoothing, acc)
    if t != ignore_index:
        if (t >= 0) & (t < columns):
            own = weight_of(W, t, acc)
            of_sum = own
            if is_smooth:
                own = (1 - s) * own
                even = s / columns
                of_sum = own + even * weight_sum[0]
            of_sum = d_loss[row] * (of_sum + 2 * T.cast(z_loss, acc) * log_sum[row])
            own = own * d_loss[row]
            even = even * d_loss[row]
        else:
            of_sum = T.cast(float("nan"), acc)
    of_sum = of_sum + d_log_sum[row]


@jit(name=f"{NAMESPACE}::cross_entropy_backward", contiguous="copy")
def cross_entropy_backward(
    d_loss, d_log_sum, X, target, log_sum, log_rest, W=None, ignore_index: T.int64 = -100,
    smoothing: T.float64 = 0.0, z_loss: T.float64 = 0.0, softcap: T.float64 = 1.0,
    has_cap: bool = False, is_smooth: bool = False,
):  # fmt: skip
    """The gradient of the logits: 0 where the target is ignored, NaN where it is out of range."""
    N = T.const("N")
    X: T.Tensor((..., N), X_DTYPE)
    acc = accumulator(X.dtype)
    d_loss: T.Tensor((...,), acc)
    d_log_sum: T.Tensor((...,), acc)
    target: T.Tensor((...,), T.int64)
    log_sum: T.Tensor((...,), acc)
    log_rest: T.Tensor((...,), acc)
    W: T.Tensor((N,), W_DTYPE)
    dX = T.empty((..., N), X_DTYPE)
    weight_sum = T.alloc_global((1,), acc)
    if is_smooth:
        with T.Kernel(1, threads=256):
            sum_weights(W, weight_sum, N)
    with T.Kernel(T.ceildiv(N, PART), X.shape[0], threads=256) as (part, row):
        own = T.alloc_var(acc, 0.0)
        even = T.alloc_var(acc, 0.0)
        of_sum = T.alloc_var(acc, 0.0)
        row_terms(
            own, even, of_sum, W, d_loss, d_log_sum, log_sum, weight_sum,
            row, target[row], N, ignore_index, smoothing, z_loss, is_smooth,
        )  # fmt: skip
        for j in T.Parallel(PART):
            c = part * PART + j
            if c < N:
                x = T.cast(X[row, c], acc)
                slope = T.cast(1.0, acc)
                if has_cap:
                    tanh = T.tanh(x / T.cast(softcap, acc))
                    x = T.cast(softcap, acc) * tanh
                    slope = 1 - tanh * tanh
                share = T.exp(x - log_sum[row] - log_rest[row])
                d = T.if_then_else(of_sum == 0, 0, of_sum * share)
                if is_smooth:
                    d = d - even * weight_of(W, c, acc)
                d = d - T.if_then_else(c == target[row], own, T.cast(0.0, acc))
                dX[row, c] = T.cast(d * slope, X.dtype)
    return dX
