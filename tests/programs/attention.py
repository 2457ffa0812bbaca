"""Attention forward: grouped heads, windows, sinks, variable lengths, block masks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.family_case import TINY, U_SUM, UNIT, Bounded, FamilyCase, randn, rounded

LOG2_E = 1.4426950408889634
NONE = -1e30


@T.macro
def softmax_step(scores, weights, acc, top, before, rescale, part, total, M, N, D, scale):
    T.copy(top, before)
    T.reduce_max(scores, top, dim=1, clear=False)
    for i in T.Parallel(M):
        rescale[i] = T.exp2((before[i] - top[i]) * scale)
    for i, j in T.Parallel(M, N):
        scores[i, j] = T.exp2((scores[i, j] - top[i]) * scale)
    T.reduce_sum(scores, part, dim=1)
    for i in T.Parallel(M):
        total[i] = total[i] * rescale[i] + part[i]
    for i, j in T.Parallel(M, D):
        acc[i, j] *= rescale[i]
    T.copy(scores, weights)


@tileops.jit
def attention(
    Q,
    K,
    V,
    sinks,
    groups: int = 1,
    window: int = 0,
    has_sinks: bool = False,
    block_M: int = 32,
    block_N: int = 32,
):
    """Causal; (batch, sequence, heads, dim); ``groups`` query heads share a key head."""
    B, S, H, D, HK = T.const("B, S, H, D, HK")
    Q: T.Tensor((B, S, H, D), "float16")
    K: T.Tensor((B, S, HK, D), "float16")
    V: T.Tensor((B, S, HK, D), "float16")
    sinks: T.Tensor((H,), "float32")
    O = T.empty((B, S, H, D), "float16")
    scale = D**-0.5 * LOG2_E
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
        Q_s = T.alloc_shared((block_M, D), "float16")
        K_s = T.alloc_shared((block_N, D), "float16")
        V_s = T.alloc_shared((block_N, D), "float16")
        scores = T.alloc_fragment((block_M, block_N), "float32")
        weights = T.alloc_fragment((block_M, block_N), "float16")
        acc = T.alloc_fragment((block_M, D), "float32")
        top = T.alloc_fragment((block_M,), "float32")
        before = T.alloc_fragment((block_M,), "float32")
        rescale = T.alloc_fragment((block_M,), "float32")
        part = T.alloc_fragment((block_M,), "float32")
        total = T.alloc_fragment((block_M,), "float32")
        T.annotate_layout({Q_s: tileops.layout.make_swizzled_layout(Q_s)})
        T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_s)
        T.fill(acc, 0)
        T.fill(total, 0)
        T.fill(top, NONE)
        first = T.max(0, (bx * block_M - window + 1) // block_N) if window else 0
        last = T.min(T.ceildiv(S, block_N), T.ceildiv((bx + 1) * block_M, block_N))
        for k in T.Pipelined(first, last, num_stages=2):
            T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_s)
            for i, j in T.Parallel(block_M, block_N):
                q_at = bx * block_M + i
                k_at = k * block_N + j
                if window:
                    scores[i, j] = T.if_then_else(
                        T.And(k_at <= q_at, k_at > q_at - window), 0, NONE
                    )
                else:
                    scores[i, j] = T.if_then_else(k_at <= q_at, 0, NONE)
            T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            softmax_step(
                scores, weights, acc, top, before, rescale, part, total, block_M, block_N, D, scale
            )
            T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_s)
            T.gemm(weights, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
        if has_sinks:
            for i in T.Parallel(block_M):
                total[i] += T.exp2(sinks[by] * LOG2_E - top[i] * scale)
        for i, j in T.Parallel(block_M, D):
            acc[i, j] /= total[i]
        T.copy(acc, O[bz, bx * block_M : (bx + 1) * block_M, by, :])
    return O


@tileops.jit
def attention_varlen(Q, K, V, starts, longest: int = 64, block_M: int = 32, block_N: int = 32):
    """Sequences packed one after the other: (tokens, heads, dim); ``starts`` has one entry more."""
    N, H, D, B1 = T.const("N, H, D, B1")
    Q: T.Tensor((N, H, D), "float16")
    K: T.Tensor((N, H, D), "float16")
    V: T.Tensor((N, H, D), "float16")
    starts: T.Tensor((B1,), "int32")
    O = T.empty((N, H, D), "float16")
    scale = D**-0.5 * LOG2_E
    with T.Kernel(T.ceildiv(longest, block_M), H, B1 - 1, threads=128) as (bx, by, bz):
        Q_s = T.alloc_shared((block_M, D), "float16")
        K_s = T.alloc_shared((block_N, D), "float16")
        V_s = T.alloc_shared((block_N, D), "float16")
        scores = T.alloc_fragment((block_M, block_N), "float32")
        weights = T.alloc_fragment((block_M, block_N), "float16")
        acc = T.alloc_fragment((block_M, D), "float32")
        top = T.alloc_fragment((block_M,), "float32")
        before = T.alloc_fragment((block_M,), "float32")
        rescale = T.alloc_fragment((block_M,), "float32")
        part = T.alloc_fragment((block_M,), "float32")
        total = T.alloc_fragment((block_M,), "float32")
        start = starts[bz]
        length = starts[bz + 1] - start
        T.copy(Q[start + bx * block_M : start + (bx + 1) * block_M, by, :], Q_s)
        T.clear(acc)
        T.clear(total)
        T.fill(top, NONE)
        for k in T.Pipelined(T.ceildiv(length, block_N), num_stages=1):
            T.copy(K[start + k * block_N : start + (k + 1) * block_N, by, :], K_s)
            for i, j in T.Parallel(block_M, block_N):
                scores[i, j] = T.if_then_else(k * block_N + j < length, 0, NONE)
            T.gemm(Q_s, K_s, scores, transpose_B=True)
            softmax_step(
                scores, weights, acc, top, before, rescale, part, total, block_M, block_N, D, scale
            )
            T.copy(V[start + k * block_N : start + (k + 1) * block_N, by, :], V_s)
            T.gemm(weights, V_s, acc)
        for i, j in T.Parallel(block_M, D):
            if bx * block_M + i < length:
                O[start + bx * block_M + i, by, j] = acc[i, j] / total[i]
    return O


@tileops.jit
def attention_block_sparse(Q, K, V, mask, block_M: int = 32, block_N: int = 32):
    B, H, S, D = T.const("B, H, S, D")
    Q: T.Tensor((B, H, S, D), "float16")
    K: T.Tensor((B, H, S, D), "float16")
    V: T.Tensor((B, H, S, D), "float16")
    mask: T.Tensor((B, H, S // block_M, S // block_N), "int8")
    O = T.empty((B, H, S, D), "float16")
    scale = D**-0.5 * LOG2_E
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
        Q_s = T.alloc_shared((block_M, D), "float16")
        K_s = T.alloc_shared((block_N, D), "float16")
        V_s = T.alloc_shared((block_N, D), "float16")
        use = T.alloc_local((S // block_N,), "int8")
        scores = T.alloc_fragment((block_M, block_N), "float32")
        weights = T.alloc_fragment((block_M, block_N), "float16")
        acc = T.alloc_fragment((block_M, D), "float32")
        top = T.alloc_fragment((block_M,), "float32")
        before = T.alloc_fragment((block_M,), "float32")
        rescale = T.alloc_fragment((block_M,), "float32")
        part = T.alloc_fragment((block_M,), "float32")
        total = T.alloc_fragment((block_M,), "float32")
        T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_s)
        T.clear(acc)
        T.clear(total)
        T.fill(top, NONE)
        for k in T.serial(S // block_N):
            use[k] = mask[bz, by, bx, k]
        for k in T.Pipelined(S // block_N, num_stages=1):
            if use[k] != 0:
                T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_s)
                T.clear(scores)
                T.gemm(Q_s, K_s, scores, transpose_B=True)
                softmax_step(
                    scores,
                    weights,
                    acc,
                    top,
                    before,
                    rescale,
                    part,
                    total,
                    block_M,
                    block_N,
                    D,
                    scale,
                )
                T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_s)
                T.gemm(weights, V_s, acc)
        for i, j in T.Parallel(block_M, D):
            acc[i, j] /= total[i]
        T.copy(acc, O[bz, by, bx * block_M : (bx + 1) * block_M, :])
    return O


def attend(q, k, v, visible=None, sink=None, scale=None) -> Bounded:
    """Attention over the last two dims in float64; ``visible`` says which keys count, ``sink`` is a score."""
    q64, k64, v64 = q.double(), k.double(), v.double()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q64 @ k64.transpose(-1, -2) * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    extra = torch.full((*scores.shape[:-1], 1), float("-inf"), dtype=torch.float64)
    if sink is not None:
        extra = sink.double()[..., None, None].expand_as(extra)
    weights = torch.cat([scores, extra], -1).softmax(-1)[..., :-1]
    value, spread = weights @ v64, weights @ v64.abs()
    reach = (q64.abs() @ k64.abs().transpose(-1, -2)).amax(-1, keepdim=True) * scale
    # The score's error and exp2's become relative errors of weights and of their sum; a weight is rounded once.
    relative = 2 * ((q.shape[-1] + 2) * U_SUM + 8 * UNIT[torch.float32]) * (reach + 2)
    relative = relative + UNIT[q.dtype] + 2 * (k.shape[-2] + 2) * U_SUM
    return value, spread * relative + TINY[q.dtype] * v64.abs().sum(-2, keepdim=True)


def _bshd_reference(groups: int, window: int, has_sinks: bool):
    def reference(q, k, v, sinks) -> list[Bounded]:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
        at = torch.arange(q.shape[2])
        visible = at[None] <= at[:, None]
        if window:
            visible &= at[None] > at[:, None] - window
        result = attend(q, k, v, visible, sinks if has_sinks else None)
        return [rounded(tuple(t.transpose(1, 2) for t in result), q.dtype)]

    return reference


def _varlen_reference(q, k, v, starts) -> list[Bounded]:
    parts = []
    for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        result = attend(*(x[a:b].transpose(0, 1) for x in (q, k, v)))
        parts.append([t.transpose(0, 1) for t in result])
    return [rounded((torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])), q.dtype)]


def _sparse_inputs() -> tuple[torch.Tensor, ...]:
    mask = (torch.rand(1, 2, 3, 3) < 0.5).to(torch.int8)
    mask[..., 0] = 1
    return (*(randn(1, 2, 96, 32, dtype=torch.float16) for _ in range(3)), mask)


def _sparse_reference(q, k, v, mask) -> list[Bounded]:
    visible = mask.bool().repeat_interleave(32, -1).repeat_interleave(32, -2)
    return [rounded(attend(q, k, v, visible), q.dtype)]


def _cases() -> Iterator[FamilyCase]:
    for name, groups, window, sinks in (
        ("mha", 1, 0, False),
        ("gqa", 2, 0, False),
        ("sliding_window", 1, 20, False),
        ("sinks", 2, 0, True),
        ("window_sinks", 2, 20, True),
    ):

        def inputs(groups: int = groups) -> tuple[torch.Tensor, ...]:
            keys = [randn(1, 75, 2, 32, dtype=torch.float16) for _ in range(2)]
            query = randn(1, 75, 2 * groups, 32, dtype=torch.float16)
            return (query, *keys, torch.randn(2 * groups))

        options = {"groups": groups, "window": window, "has_sinks": sinks}
        yield FamilyCase(
            f"attention-{name}", attention, inputs, _bshd_reference(groups, window, sinks), options
        )
    yield FamilyCase(
        "attention_varlen",
        attention_varlen,
        lambda: (
            *(randn(101, 2, 32, dtype=torch.float16) for _ in range(3)),
            torch.tensor([0, 37, 38, 101], dtype=torch.int32),
        ),
        _varlen_reference,
    )
    yield FamilyCase(
        "attention_block_sparse", attention_block_sparse, _sparse_inputs, _sparse_reference
    )


CASES = tuple(_cases())
