"""Linear recurrences by chunks: the states and the outputs of Mamba-2, and the gated delta rule."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

import tileops
import tileops.language as T
from tests.programs.family_case import U_SUM, UNIT, Bounded, FamilyCase, randn, rounded

LOG2_E = 1.4426950408889634
HALF = torch.float16


@tileops.jit
def chunk_state(B, X, dt, decay, block_L: int = 16):
    """states[b, c, h] = sum over a chunk of exp(last - decay) * dt * x outer b; sizes (b, c, l, h, ..)."""
    NB, NC, L, H, P, N = T.const("NB, NC, L, H, P, N")
    B: T.Tensor((NB, NC, L, H, N), "float16")
    X: T.Tensor((NB, NC, L, H, P), "float16")
    dt: T.Tensor((NB, H, NC, L), "float32")
    decay: T.Tensor((NB, H, NC, L), "float32")
    out = T.empty((NB, NC, H, P, N), "float32")
    with T.Kernel(NB * NC, H, threads=128) as (bz, by):
        b = bz // NC
        c = bz % NC
        X_s = T.alloc_shared((block_L, P), "float16")
        X_t = T.alloc_fragment((P, block_L), "float16")
        B_s = T.alloc_shared((block_L, N), "float16")
        scale = T.alloc_fragment((block_L,), "float32")
        acc = T.alloc_fragment((P, N), "float32")
        last = decay[b, by, c, L - 1]
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(L, block_L), num_stages=2):
            T.copy(X[b, c, k * block_L : (k + 1) * block_L, by, :], X_s)
            T.copy(B[b, c, k * block_L : (k + 1) * block_L, by, :], B_s)
            for i in T.Parallel(block_L):
                scale[i] = (
                    T.exp2((last - decay[b, by, c, k * block_L + i]) * LOG2_E)
                    * dt[b, by, c, k * block_L + i]
                )
            for i, j in T.Parallel(P, block_L):
                X_t[i, j] = X_s[j, i] * scale[j]
            T.gemm(X_t, B_s, acc)
        T.copy(acc, out[b, c, by, :, :])
    return out


@tileops.jit
def chunk_scan(CB, X, dt, decay, C, states, D, block: int = 16):
    """y = exp(decay) * C @ state + (CB * exp(decay_l - decay_s) * dt_s, s <= l) @ x + D * x."""
    NB, NC, L, H, P, N = T.const("NB, NC, L, H, P, N")
    CB: T.Tensor((NB, NC, H, L, L), "float16")
    X: T.Tensor((NB, NC, L, H, P), "float16")
    dt: T.Tensor((NB, H, NC, L), "float32")
    decay: T.Tensor((NB, H, NC, L), "float32")
    C: T.Tensor((NB, NC, L, H, N), "float16")
    states: T.Tensor((NB, NC, H, P, N), "float16")
    D: T.Tensor((H,), "float32")
    out = T.empty((NB, NC, L, H, P), "float32")
    with T.Kernel(H, T.ceildiv(L, block), NB * NC, threads=128) as (bz, bx, by):
        b = by // NC
        c = by % NC
        C_s = T.alloc_shared((block, N), "float16")
        state_s = T.alloc_shared((P, N), "float16")
        X_s = T.alloc_shared((block, P), "float16")
        CB_s = T.alloc_shared((block, block), "float16")
        CB_f = T.alloc_fragment((block, block), "float16")
        acc = T.alloc_fragment((block, P), "float32")
        T.copy(C[b, c, bx * block : (bx + 1) * block, bz, :], C_s)
        T.copy(states[b, c, bz, :, :], state_s)
        T.gemm(C_s, state_s, acc, transpose_B=True, clear_accum=True)
        for i, j in T.Parallel(block, P):
            acc[i, j] *= T.exp2(decay[b, bz, c, bx * block + i] * LOG2_E)
        for k in T.Pipelined(bx + 1, num_stages=2):
            T.copy(CB[b, c, bz, bx * block : (bx + 1) * block, k * block : (k + 1) * block], CB_s)
            for i, j in T.Parallel(block, block):
                at = bx * block + i
                src = k * block + j
                CB_f[i, j] = T.if_then_else(
                    at >= src,
                    CB_s[i, j]
                    * T.exp2((decay[b, bz, c, at] - decay[b, bz, c, src]) * LOG2_E)
                    * dt[b, bz, c, src],
                    0,
                )
            T.copy(X[b, c, k * block : (k + 1) * block, bz, :], X_s)
            T.gemm(CB_f, X_s, acc)
        for i, j in T.Parallel(block, P):
            acc[i, j] += D[bz] * X_s[i, j]
        T.copy(acc, out[b, c, bx * block : (bx + 1) * block, bz, :])
    return out


@tileops.jit
def gated_delta(Q, K, W, U, g, chunk: int = 16):
    """The state recurrence over chunks; ``g`` is the running sum of log gates within each chunk."""
    B, H, S, D, DV = T.const("B, H, S, D, DV")
    Q: T.Tensor((B, S, H, D), "float16")
    K: T.Tensor((B, S, H, D), "float16")
    W: T.Tensor((B, S, H, D), "float16")
    U: T.Tensor((B, S, H, DV), "float16")
    g: T.Tensor((B, S, H), "float32")
    O = T.empty((B, S, H, DV), "float32")
    final = T.empty((B, H, D, DV), "float32")
    with T.Kernel(B * H, threads=128) as bh:
        b, h = bh // H, bh % H
        state = T.alloc_fragment((D, DV), "float32")
        state_s = T.alloc_shared((D, DV), "float16")
        Q_s = T.alloc_shared((chunk, D), "float16")
        K_s = T.alloc_shared((chunk, D), "float16")
        W_s = T.alloc_shared((chunk, D), "float16")
        V_s = T.alloc_shared((chunk, DV), "float16")
        K_g = T.alloc_shared((chunk, D), "float16")
        P_s = T.alloc_shared((chunk, chunk), "float16")
        g_s = T.alloc_shared((chunk,), "float32", scope="shared")
        v = T.alloc_fragment((chunk, DV), "float32")
        p = T.alloc_fragment((chunk, chunk), "float32")
        o = T.alloc_fragment((chunk, DV), "float32")
        T.clear(state)
        for c in T.serial(S // chunk):
            rows = c * chunk
            T.copy(state, state_s)
            T.copy(Q[b, rows : rows + chunk, h, :], Q_s)
            T.copy(K[b, rows : rows + chunk, h, :], K_s)
            T.copy(W[b, rows : rows + chunk, h, :], W_s)
            T.copy(g[b, rows : rows + chunk, h], g_s)
            last = g_s[chunk - 1]
            T.gemm(W_s, state_s, v, clear_accum=True)
            for i, j in T.Parallel(chunk, DV):
                v[i, j] = U[b, rows + i, h, j] - v[i, j]
            T.copy(v, V_s)
            T.gemm(Q_s, state_s, o, clear_accum=True)
            for i, j in T.Parallel(chunk, DV):
                o[i, j] *= T.exp(g_s[i])
            T.gemm(Q_s, K_s, p, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(chunk, chunk):
                P_s[i, j] = T.if_then_else(i >= j, p[i, j] * T.exp(g_s[i] - g_s[j]), 0)
            T.gemm(P_s, V_s, o)
            T.copy(o, O[b, rows : rows + chunk, h, :])
            for i, j in T.Parallel(chunk, D):
                K_g[i, j] = K_s[i, j] * T.exp(last - g_s[i])
            for i, j in T.Parallel(D, DV):
                state[i, j] *= T.exp(last)
            T.gemm(K_g, V_s, state, transpose_A=True)
        T.copy(state, final[b, h, :, :])
    return O, final


def times(a: Bounded, b: Bounded) -> Bounded:
    """A matrix product of two inexact matrices, with the error of its own sum."""
    (x, ex), (y, ey) = a, b
    size = (x.abs() + ex) @ (y.abs() + ey)
    return x @ y, ex @ (y.abs() + ey) + x.abs() @ ey + (x.shape[-1] + 2) * U_SUM * size


def scaled(a: Bounded, factor: torch.Tensor, reach: float) -> Bounded:
    """``a`` times a non-negative factor made of exps whose arguments are up to ``reach``."""
    x, e = a
    relative = 8 * (reach + 2) * UNIT[torch.float32]
    return x * factor, (e + relative * (x.abs() + e)) * factor


def plus(a: Bounded, b: Bounded) -> Bounded:
    return a[0] + b[0], (a[1] + b[1]) + 4 * UNIT[torch.float32] * (a[0].abs() + b[0].abs())


def sure(x: torch.Tensor) -> Bounded:
    return x.double(), torch.zeros(x.shape, dtype=torch.float64)


def _decay(nb: int, h: int, nc: int, length: int) -> torch.Tensor:
    return (-torch.rand(nb, h, nc, length) / 4).cumsum(-1)


def _state_inputs() -> tuple[torch.Tensor, ...]:
    b, x = randn(2, 2, 40, 2, 16, dtype=HALF), randn(2, 2, 40, 2, 32, dtype=HALF)
    return b, x, torch.rand(2, 2, 2, 40), _decay(2, 2, 2, 40)


def _state_reference(b, x, dt, decay) -> list[Bounded]:
    factor = (decay[..., -1:].double() - decay.double()).exp() * dt.double()
    left = scaled(sure(x.permute(0, 1, 3, 4, 2)), factor.permute(0, 2, 1, 3)[..., None, :], 12)
    return [times(rounded(left, HALF), sure(b.permute(0, 1, 3, 2, 4)))]


def _scan_inputs() -> tuple[torch.Tensor, ...]:
    nb, nc, length, h, p, n = 1, 2, 40, 2, 32, 16
    return (
        randn(nb, nc, h, length, length, dtype=HALF),
        randn(nb, nc, length, h, p, dtype=HALF),
        torch.rand(nb, h, nc, length),
        _decay(nb, h, nc, length),
        randn(nb, nc, length, h, n, dtype=HALF),
        randn(nb, nc, h, p, n, dtype=HALF),
        torch.randn(h),
    )


def _scan_reference(cb, x, dt, decay, c, states, d) -> list[Bounded]:
    gate = decay.double().permute(0, 2, 1, 3)
    old = times(sure(c.permute(0, 1, 3, 2, 4)), sure(states.mT))
    old = scaled(old, gate.exp()[..., None], 12)
    inner = (gate[..., :, None] - gate[..., None, :]).exp().tril()
    inner = inner * dt.double().permute(0, 2, 1, 3)[..., None, :]
    weights = rounded(scaled(sure(cb), inner, 12), HALF)
    xs = x.permute(0, 1, 3, 2, 4)
    new = times((weights[0].tril(), weights[1].tril()), sure(xs))
    skip = d.double()[:, None, None] * xs.double()
    value, bound = plus(plus(old, new), sure(skip))
    return [(value.permute(0, 1, 3, 2, 4), bound.permute(0, 1, 3, 2, 4))]


def _delta_inputs(
    chunk: int = 16, length: int = 48, d: int = 32, dv: int = 16
) -> tuple[torch.Tensor, ...]:
    q, k, w = (randn(1, length, 2, d).div(d**0.5).to(HALF) for _ in range(3))
    g = (-torch.rand(1, length // chunk, chunk, 2) / 4).cumsum(2).flatten(1, 2)
    return q, k, w, randn(1, length, 2, dv, dtype=HALF), g


def _delta_reference(q, k, w, u, g, chunk: int = 16) -> list[Bounded]:
    q, k, w, u = (x.double().transpose(1, 2) for x in (q, k, w, u))
    g = g.double().transpose(1, 2)
    state = sure(torch.zeros(1, 2, q.shape[-1], u.shape[-1]))
    outs = []
    for start in range(0, q.shape[2], chunk):
        qc, kc, wc, uc = (x[:, :, start : start + chunk] for x in (q, k, w, u))
        gc = g[:, :, start : start + chunk, None]
        state_s = rounded(state, HALF)
        taken = times(sure(wc), state_s)
        v_s = rounded(plus(sure(uc), (-taken[0], taken[1])), HALF)
        old = scaled(times(sure(qc), state_s), gc.exp(), 4)
        p = scaled(times(sure(qc), sure(kc.mT)), (gc - gc.mT).exp().tril(), 8)
        p = rounded(p, HALF)
        outs.append(plus(old, times((p[0].tril(), p[1].tril()), v_s)))
        last = gc[:, :, -1:]
        k_g = rounded(scaled(sure(kc), (last - gc).exp(), 8), HALF)
        kept = scaled(state, last.exp(), 4)
        state = plus(kept, times((k_g[0].mT, k_g[1].mT), v_s))
    out = tuple(torch.cat([o[n] for o in outs], 2).transpose(1, 2) for n in range(2))
    return [out, state]


def _cases() -> Iterator[FamilyCase]:
    yield FamilyCase("mamba2_chunk_state", chunk_state, _state_inputs, _state_reference)
    yield FamilyCase("mamba2_chunk_scan", chunk_scan, _scan_inputs, _scan_reference)
    yield FamilyCase("gated_delta", gated_delta, _delta_inputs, _delta_reference)
    # Products have the state and decayed keys, which the program computes, as second or transposed
    # operands, and as many rows as one group of warps has at least.
    yield FamilyCase(
        "gated_delta-64", gated_delta, functools.partial(_delta_inputs, 64, 192, 128, 64),
        functools.partial(_delta_reference, chunk=64), {"chunk": 64},
    )  # fmt: skip


CASES = tuple(_cases())
