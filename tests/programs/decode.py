"""Attention for one new token: pages of keys, splits with a combining launch, latent keys; and the backward pass."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.attention import LOG2_E, NONE, attend, softmax_step
from tests.programs.family_case import U_SUM, UNIT, Bounded, FamilyCase, exact, randn, rounded


@tileops.jit
def decode_paged(Q, K, V, table, lengths, page: int = 16, heads: int = 16):
    """Keys lie in pages (pages * page, key heads, dim); ``table`` lists the pages of each sequence."""
    B, H, D, N, HK, P = T.const("B, H, D, N, HK, P")
    Q: T.Tensor((B, H, D), "float16")
    K: T.Tensor((N, HK, D), "float16")
    V: T.Tensor((N, HK, D), "float16")
    table: T.Tensor((B, P), "int32")
    lengths: T.Tensor((B,), "int32")
    O = T.empty((B, H, D), "float16")
    scale = D**-0.5 * LOG2_E
    with T.Kernel(B, HK, threads=128) as (bx, by):
        Q_s = T.alloc_shared((heads, D), "float16")
        K_s = T.alloc_shared((page, D), "float16")
        V_s = T.alloc_shared((page, D), "float16")
        scores = T.alloc_fragment((heads, page), "float32")
        weights = T.alloc_fragment((heads, page), "float16")
        acc = T.alloc_fragment((heads, D), "float32")
        top = T.alloc_fragment((heads,), "float32")
        before = T.alloc_fragment((heads,), "float32")
        rescale = T.alloc_fragment((heads,), "float32")
        part = T.alloc_fragment((heads,), "float32")
        total = T.alloc_fragment((heads,), "float32")
        T.copy(Q[bx, by * heads : (by + 1) * heads, :], Q_s)
        T.clear(acc)
        T.clear(total)
        T.fill(top, NONE)
        for k in T.Pipelined(T.ceildiv(lengths[bx], page), num_stages=2):
            at = table[bx, k] * page
            T.copy(K[at : at + page, by, :], K_s)
            T.copy(V[at : at + page, by, :], V_s)
            T.gemm(Q_s, K_s, scores, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(heads, page):
                scores[i, j] = T.if_then_else(k * page + j < lengths[bx], scores[i, j], NONE)
            softmax_step(
                scores, weights, acc, top, before, rescale, part, total, heads, page, D, scale
            )
            T.gemm(weights, V_s, acc)
        for i, j in T.Parallel(heads, D):
            acc[i, j] /= total[i]
        T.copy(acc, O[bx, by * heads, 0])
    return O


@tileops.jit
def decode_split(Q, K, V, splits: int = 3, heads: int = 16, block_N: int = 16):
    """Each split writes its part and the log of its total; a second launch combines them."""
    B, H, D, S, HK = T.const("B, H, D, S, HK")
    Q: T.Tensor((B, H, D), "float16")
    K: T.Tensor((B, S, HK, D), "float16")
    V: T.Tensor((B, S, HK, D), "float16")
    O = T.empty((B, H, D), "float16")
    parts = T.alloc_global((B, H, splits, D), "float32")
    logs = T.alloc_global((B, H, splits), "float32")
    scale = D**-0.5 * LOG2_E
    span = T.ceildiv(T.ceildiv(S, splits), block_N) * block_N
    with T.Kernel(B, HK, splits, threads=128) as (bx, by, bz):
        Q_s = T.alloc_shared((heads, D), "float16")
        K_s = T.alloc_shared((block_N, D), "float16")
        V_s = T.alloc_shared((block_N, D), "float16")
        scores = T.alloc_fragment((heads, block_N), "float32")
        weights = T.alloc_fragment((heads, block_N), "float16")
        acc = T.alloc_fragment((heads, D), "float32")
        top = T.alloc_fragment((heads,), "float32")
        before = T.alloc_fragment((heads,), "float32")
        rescale = T.alloc_fragment((heads,), "float32")
        part = T.alloc_fragment((heads,), "float32")
        total = T.alloc_fragment((heads,), "float32")
        T.copy(Q[bx, by * heads : (by + 1) * heads, :], Q_s)
        T.clear(acc)
        T.clear(total)
        T.fill(top, NONE)
        for k in T.Pipelined(span // block_N, num_stages=2):
            at = bz * span + k * block_N
            T.copy(K[bx, at : at + block_N, by, :], K_s)
            T.copy(V[bx, at : at + block_N, by, :], V_s)
            T.gemm(Q_s, K_s, scores, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(heads, block_N):
                scores[i, j] = T.if_then_else(at + j < S, scores[i, j], -T.infinity("float32"))
            softmax_step(
                scores, weights, acc, top, before, rescale, part, total, heads, block_N, D, scale
            )
            T.gemm(weights, V_s, acc)
        for i, j in T.Parallel(heads, D):
            parts[bx, by * heads + i, bz, j] = acc[i, j] / total[i]
        for i in T.Parallel(heads):
            logs[bx, by * heads + i, bz] = T.log2(total[i]) + top[i] * scale
    with T.Kernel(B, H, threads=128) as (bx, by):
        share = T.alloc_fragment((splits,), "float32")
        most = T.alloc_fragment((1,), "float32")
        whole = T.alloc_fragment((1,), "float32")
        out = T.alloc_fragment((D,), "float32")
        T.copy(logs[bx, by, :], share)
        T.reduce_max(share, most, dim=0)
        for s in T.Parallel(splits):
            share[s] = T.exp2(share[s] - most[0])
        T.reduce_sum(share, whole, dim=0)
        T.clear(out)
        for s in T.serial(splits):
            weight = T.exp2(logs[bx, by, s] - most[0]) / whole[0]
            for j in T.Parallel(D):
                out[j] += parts[bx, by, s, j] * weight
        T.copy(out, O[bx, by, :])
    return O


@tileops.jit
def decode_mla(Q, Q_rope, KV, K_rope, heads: int = 16, block_N: int = 32):
    """All heads share one latent vector a token, which is both key and value, and a rotated key."""
    B, H, D, R, S = T.const("B, H, D, R, S")
    Q: T.Tensor((B, H, D), "float16")
    Q_rope: T.Tensor((B, H, R), "float16")
    KV: T.Tensor((B, S, D), "float16")
    K_rope: T.Tensor((B, S, R), "float16")
    O = T.empty((B, H, D), "float16")
    scale = (D + R) ** -0.5 * LOG2_E
    with T.Kernel(H // heads, B, threads=256) as (hx, bx):
        Q_s = T.alloc_shared((heads, D), "float16")
        QR_s = T.alloc_shared((heads, R), "float16")
        KV_s = T.alloc_shared((block_N, D), "float16")
        KR_s = T.alloc_shared((block_N, R), "float16")
        W_s = T.alloc_shared((heads, block_N), "float16")
        scores = T.alloc_fragment((heads, block_N), "float32")
        acc = T.alloc_fragment((heads, D), "float32")
        top = T.alloc_fragment((heads,), "float32")
        before = T.alloc_fragment((heads,), "float32")
        rescale = T.alloc_fragment((heads,), "float32")
        part = T.alloc_fragment((heads,), "float32")
        total = T.alloc_fragment((heads,), "float32")
        T.copy(Q[bx, hx * heads : (hx + 1) * heads, :], Q_s)
        T.copy(Q_rope[bx, hx * heads : (hx + 1) * heads, :], QR_s)
        T.fill(acc, 0)
        T.fill(total, 0)
        T.fill(top, NONE)
        for k in T.Pipelined(T.ceildiv(S, block_N), num_stages=2):
            T.copy(KV[bx, k * block_N : (k + 1) * block_N, :], KV_s)
            T.copy(K_rope[bx, k * block_N : (k + 1) * block_N, :], KR_s)
            T.clear(scores)
            T.gemm(Q_s, KV_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
            T.gemm(QR_s, KR_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(heads, block_N):
                if k * block_N + j >= S:
                    scores[i, j] = NONE
            softmax_step(
                scores, W_s, acc, top, before, rescale, part, total, heads, block_N, D, scale
            )
            T.gemm(W_s, KV_s, acc, policy=T.GemmWarpPolicy.FullCol)
        for i, j in T.Parallel(heads, D):
            acc[i, j] /= total[i]
        T.copy(acc, O[bx, hx * heads : (hx + 1) * heads, :])
    return O


def in_fragments(t):
    """A layout in which 8 by 8 elements of the last two dimensions lie as two columns of 32."""
    return T.Layout(
        t.shape,
        lambda b, h, s, d: (b, h, s // 8, d // 8, d % 2, 4 * (s % 8) + (d % 8) // 2),
    )


@tileops.jit
def attention_backward(
    Q, K, V, dO, lse, delta, dQ, block_M: int = 32, block_N: int = 32, permuted: bool = False
):
    """One block owns keys and values and adds to dQ with atomics; ``lse`` is to the base 2.

    ``permuted``: dQ's storage is permuted; ``gather_gradient`` puts it right.
    """
    B, H, S, D = T.const("B, H, S, D")
    Q: T.Tensor((B, H, S, D), "float16")
    K: T.Tensor((B, H, S, D), "float16")
    V: T.Tensor((B, H, S, D), "float16")
    dO: T.Tensor((B, H, S, D), "float16")
    lse: T.Tensor((B, H, S), "float32")
    delta: T.Tensor((B, H, S), "float32")
    dQ: T.Tensor((B, H, S, D), "float32")
    dK = T.empty((B, H, S, D), "float32")
    dV = T.empty((B, H, S, D), "float32")
    scale = D**-0.5
    with T.Kernel(H, T.ceildiv(S, block_N), B, threads=128) as (bx, by, bz):
        K_s = T.alloc_shared((block_N, D), "float16")
        V_s = T.alloc_shared((block_N, D), "float16")
        Q_s = T.alloc_shared((block_M, D), "float16")
        dO_s = T.alloc_shared((block_M, D), "float16")
        lse_s = T.alloc_shared((block_M,), "float32")
        delta_s = T.alloc_shared((block_M,), "float32")
        S_t = T.alloc_fragment((block_N, block_M), "float32")
        P_t = T.alloc_fragment((block_N, block_M), "float16")
        dP_t = T.alloc_fragment((block_N, block_M), "float32")
        dS_t = T.alloc_fragment((block_N, block_M), "float16")
        dS_s = T.alloc_shared((block_N, block_M), "float16")
        dv = T.alloc_fragment((block_N, D), "float32")
        dk = T.alloc_fragment((block_N, D), "float32")
        dq = T.alloc_fragment((block_M, D), "float32")
        if permuted:
            T.annotate_layout({dQ: in_fragments(dQ)})
        T.copy(K[bz, bx, by * block_N : (by + 1) * block_N, :], K_s)
        T.copy(V[bz, bx, by * block_N : (by + 1) * block_N, :], V_s)
        T.clear(dv)
        T.clear(dk)
        for m in T.Pipelined(T.ceildiv(S, block_M), num_stages=1):
            T.copy(Q[bz, bx, m * block_M : (m + 1) * block_M, :], Q_s)
            T.copy(dO[bz, bx, m * block_M : (m + 1) * block_M, :], dO_s)
            T.copy(lse[bz, bx, m * block_M : (m + 1) * block_M], lse_s)
            T.copy(delta[bz, bx, m * block_M : (m + 1) * block_M], delta_s)
            T.clear(S_t)
            T.gemm(K_s, Q_s, S_t, transpose_B=True)
            for i, j in T.Parallel(block_N, block_M):
                S_t[i, j] = T.if_then_else(
                    by * block_N + i < S, T.exp2(S_t[i, j] * scale * LOG2_E - lse_s[j]), 0
                )
            T.copy(S_t, P_t)
            T.gemm(P_t, dO_s, dv)
            T.clear(dP_t)
            T.gemm(V_s, dO_s, dP_t, transpose_B=True)
            for i, j in T.Parallel(block_N, block_M):
                dS_t[i, j] = S_t[i, j] * (dP_t[i, j] - delta_s[j]) * scale
            T.gemm(dS_t, Q_s, dk)
            T.copy(dS_t, dS_s)
            T.clear(dq)
            T.gemm(dS_s, K_s, dq, transpose_A=True)
            for i, j in T.Parallel(block_M, D):
                if m * block_M + i < S:
                    T.atomic_add(dQ[bz, bx, m * block_M + i, j], dq[i, j])
        T.copy(dv, dV[bz, bx, by * block_N : (by + 1) * block_N, :])
        T.copy(dk, dK[bz, bx, by * block_N : (by + 1) * block_N, :])
    return dK, dV


@tileops.jit
def gather_gradient(dQ, block_M: int = 32):
    """The gradient that ``attention_backward`` left permuted, row-major and in half the bytes."""
    B, H, S, D = T.const("B, H, S, D")
    dQ: T.Tensor((B, H, S, D), "float32")
    out = T.empty((B, H, S, D), "float16")
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
        T.annotate_layout({dQ: in_fragments(dQ)})
        T.copy(
            dQ[bz, by, bx * block_M : (bx + 1) * block_M, :],
            out[bz, by, bx * block_M : (bx + 1) * block_M, :],
        )
    return out


def _paged_inputs() -> tuple[torch.Tensor, ...]:
    table = torch.randperm(8, dtype=torch.int32).reshape(2, 4)
    q, k, v = (randn(*s, 32, dtype=torch.float16) for s in ((2, 32), (128, 2), (128, 2)))
    return q, k, v, table, torch.tensor([61, 17], dtype=torch.int32)


def _paged_reference(q, k, v, table, lengths) -> list[Bounded]:
    results = []
    for b, length in enumerate(lengths.tolist()):
        rows = (table[b, :, None] * 16 + torch.arange(16)).flatten()[:length]
        heads = [attend(q[b, 16 * h : 16 * h + 16], k[rows, h], v[rows, h]) for h in range(2)]
        results.append([torch.cat([x[n] for x in heads]) for n in range(2)])
    return [rounded(tuple(torch.stack([r[n] for r in results]) for n in range(2)), q.dtype)]


def _split_reference(q, k, v) -> list[Bounded]:
    keys, values = (x.permute(0, 2, 1, 3) for x in (k, v))
    grouped = q.unflatten(1, (keys.shape[1], -1))
    return [rounded(tuple(t.flatten(1, 2) for t in attend(grouped, keys, values)), q.dtype)]


def _mla_reference(q, q_rope, kv, k_rope) -> list[Bounded]:
    keys = torch.cat([kv, k_rope], -1)
    return [rounded(attend(torch.cat([q, q_rope], -1), keys, kv), q.dtype)]


def as_stored(x: torch.Tensor) -> torch.Tensor:
    """``x`` of shape (B, H, S, D) with its elements where ``in_fragments`` puts them."""
    b, h, s, d = x.shape
    pairs = x.reshape(b, h, s // 8, 8, d // 8, 4, 2)
    return pairs.permute(0, 1, 2, 4, 6, 3, 5).reshape(x.shape)


def _as_indexed(x: torch.Tensor) -> torch.Tensor:
    """What ``as_stored`` was given."""
    b, h, s, d = x.shape
    parts = x.reshape(b, h, s // 8, d // 8, 2, 8, 4)
    return parts.permute(0, 1, 2, 5, 3, 6, 4).reshape(x.shape)


def _backward_inputs(length: int = 50) -> tuple[torch.Tensor, ...]:
    q, k, v, do = (randn(1, 2, length, 32, dtype=torch.float16) for _ in range(4))
    scores = q.double() @ k.double().mT * 32**-0.5
    out = scores.softmax(-1) @ v.double()
    delta = (out * do.double()).sum(-1).float()
    lse = (scores.logsumexp(-1) * LOG2_E).float()
    return q, k, v, do, lse, delta, torch.zeros(1, 2, length, 32)


def _backward_reference(q, k, v, do, lse, delta, dq) -> list[Bounded]:
    q, k, v, do = (x.double() for x in (q, k, v, do))
    scale, n = 32**-0.5, q.shape[2]
    p = (q @ k.mT * scale).softmax(-1)
    dp = do @ v.mT
    ds = p * (dp - delta.double()[..., None]) * scale
    reach = (q.abs() @ k.abs().mT * scale).amax() + lse.double().abs().amax() + 2
    # exp2's argument, then one rounding of p, of ds and a sum: relative to what a term may be at most.
    weight = 2 * (34 * U_SUM + 8 * UNIT[torch.float32]) * reach
    ds_size = p * (do.abs() @ v.abs().mT + delta.double().abs()[..., None]) * scale
    ds_error = ds_size * (weight + 36 * U_SUM) + ds.abs() * 2.0**-11 + 2.0**-24
    p_error = p * (weight + 2.0**-11) + 2.0**-24
    tail = (n + 2) * U_SUM
    return [
        (ds.mT @ q, ds_error.mT @ q.abs() + tail * (ds.abs().mT @ q.abs()) + 1e-9),
        (p.mT @ do, p_error.mT @ do.abs() + tail * (p.mT @ do.abs()) + 1e-9),
        (ds @ k, ds_error @ k.abs() + tail * (ds.abs() @ k.abs()) + 1e-9),
    ]


def _permuted_reference(*inputs) -> list[Bounded]:
    dk, dv, dq = _backward_reference(*inputs)
    return [dk, dv, tuple(map(as_stored, dq))]


def _cases() -> Iterator[FamilyCase]:
    yield FamilyCase("decode_paged", decode_paged, _paged_inputs, _paged_reference)
    yield FamilyCase(
        "decode_split",
        decode_split,
        lambda: tuple(
            randn(*s, dtype=torch.float16) for s in ((2, 32, 32), (2, 75, 2, 32), (2, 75, 2, 32))
        ),
        _split_reference,
    )
    yield FamilyCase(
        "decode_mla",
        decode_mla,
        lambda: tuple(
            randn(*s, dtype=torch.float16)
            for s in ((2, 32, 64), (2, 32, 16), (2, 75, 64), (2, 75, 16))
        ),
        _mla_reference,
    )
    yield FamilyCase(
        "attention_backward",
        attention_backward,
        _backward_inputs,
        _backward_reference,
        mutated=(6,),
    )
    yield FamilyCase(
        "attention_backward-permuted",
        attention_backward,
        lambda: _backward_inputs(72),
        _permuted_reference,
        {"permuted": True},
        mutated=(6,),
    )
    yield FamilyCase(
        "gather_gradient",
        gather_gradient,
        lambda: (as_stored(torch.randn(1, 2, 72, 32)),),
        lambda x: [rounded(exact(_as_indexed(x)), torch.float16)],
    )


CASES = tuple(_cases())
