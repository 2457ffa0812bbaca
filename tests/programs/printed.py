"""The programs whose printed IR is a golden file, eager and lazy."""

from __future__ import annotations

import tileops.language as T


# -- matmul ----------------------------------------------------------------------------------------
def matmul_relu(A, B, block_M: int = 128, block_N: int = 128, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), T.float16)
        B_s = T.alloc_shared((block_K, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(B[k * block_K, bx * block_N], B_s)
            T.gemm(A_s, B_s, acc)
        for i, j in T.Parallel(block_M, block_N):
            acc[i, j] = T.max(acc[i, j], 0)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


def matmul_relu_lazy(M, N, K, block_M=128, block_N=128, block_K=32):
    @T.prim_func
    def matmul_relu(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((K, N), T.float16),
        C: T.Tensor((M, N), T.float16),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_s = T.alloc_shared((block_M, block_K), T.float16)
            B_s = T.alloc_shared((block_K, block_N), T.float16)
            acc = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, k * block_K], A_s)
                T.copy(B[k * block_K, bx * block_N], B_s)
                T.gemm(A_s, B_s, acc)
            for i, j in T.Parallel(block_M, block_N):
                acc[i, j] = T.max(acc[i, j], 0)
            T.copy(acc, C[by * block_M, bx * block_N])

    return matmul_relu


# -- elementwise ---------------------------------------------------------------------------------
def add(A, B, block: int = 1024):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=256) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
    return C


def add_lazy(block=1024):
    N = T.dynamic("N")

    @T.prim_func
    def add(
        A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32), C: T.Tensor((N,), T.float32)
    ):
        with T.Kernel(T.ceildiv(N, block), threads=256) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return add


# -- rows ----------------------------------------------------------------------------------------
def rmsnorm(X, W, eps: float = 1e-6, rows: int = 4):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.bfloat16)
    W: T.Tensor((N,), T.bfloat16)
    Y = T.empty((M, N), T.bfloat16)
    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x = T.alloc_fragment((rows, N), T.float32)
        square = T.alloc_fragment((rows, N), T.float32)
        total = T.alloc_fragment((rows,), T.float32)
        T.copy(X[bx * rows, 0], x)
        for i, j in T.Parallel(rows, N):
            square[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(square, total, dim=1)
        for i, j in T.Parallel(rows, N):
            x[i, j] = x[i, j] * T.rsqrt(total[i] / N + eps) * W[j]
        T.copy(x, Y[bx * rows, 0])
    return Y


def rmsnorm_lazy(M, N, eps=1e-6, rows=4):
    @T.prim_func
    def rmsnorm(
        X: T.Tensor((M, N), T.bfloat16),
        W: T.Tensor((N,), T.bfloat16),
        Y: T.Tensor((M, N), T.bfloat16),
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, N), T.float32)
            square = T.alloc_fragment((rows, N), T.float32)
            total = T.alloc_fragment((rows,), T.float32)
            T.copy(X[bx * rows, 0], x)
            for i, j in T.Parallel(rows, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, total, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] * T.rsqrt(total[i] / N + eps) * W[j]
            T.copy(x, Y[bx * rows, 0])

    return rmsnorm


def softmax(X, block: int = 128):
    """Streaming: one pass for the maximum and the sum, one for the result."""
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=128) as row:
        x = T.alloc_fragment((block,), T.float32)
        part = T.alloc_fragment((1,), T.float32)
        highest = T.alloc_var(T.float32, -T.infinity(T.float32))
        total = T.alloc_var(T.float32, 0.0)
        for k in T.serial(T.ceildiv(N, block)):
            for i in T.Parallel(block):
                column = k * block + i
                x[i] = T.if_then_else(column < N, X[row, column], -T.infinity(T.float32))
            T.reduce_max(x, part)
            new = T.max(highest, part[0])
            total *= T.exp(highest - new)
            for i in T.Parallel(block):
                x[i] = T.exp(x[i] - new)
            T.reduce_sum(x, part)
            total += part[0]
            highest = new
        for k in T.serial(T.ceildiv(N, block)):
            for i in T.Parallel(block):
                if k * block + i < N:
                    Y[row, k * block + i] = T.exp(X[row, k * block + i] - highest) / total
    return Y


# -- two launches --------------------------------------------------------------------------------
def split_k(A, B, split: int = 4, block: int = 64, block_K: int = 32):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float32)
    partial = T.alloc_global((split, M, N), T.float32)
    span = T.ceildiv(T.ceildiv(K, split), block_K) * block_K
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), split, threads=128) as (bx, by, bz):
        A_s = T.alloc_shared((block, block_K), T.float16)
        B_s = T.alloc_shared((block_K, block), T.float16)
        acc = T.alloc_fragment((block, block), T.float32)
        T.clear(acc)
        for k in T.Pipelined(span // block_K, num_stages=2):
            T.copy(A[by * block, bz * span + k * block_K], A_s)
            T.copy(B[bz * span + k * block_K, bx * block], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, partial[bz, by * block, bx * block])
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        acc = T.alloc_fragment((block, block), T.float32)
        part = T.alloc_fragment((block, block), T.float32)
        T.clear(acc)
        for s in range(split):
            T.copy(partial[s, by * block, bx * block], part)
            for i, j in T.Parallel(block, block):
                acc[i, j] += part[i, j]
        T.copy(acc, C[by * block, bx * block])
    return C


# -- attention -----------------------------------------------------------------------------------
def attention(Q, K, V, causal: bool = False, block_M: int = 64, block_N: int = 64):
    B, H, S, D = T.const("B, H, S, D")
    Q: T.Tensor((B, H, S, D), T.float16)
    K: T.Tensor((B, H, S, D), T.float16)
    V: T.Tensor((B, H, S, D), T.float16)
    O = T.empty((B, H, S, D), T.float16)
    scale = (1.0 / D) ** 0.5 * 1.44269504  # log2(e)
    with T.Kernel(T.ceildiv(S, block_M), H, B, threads=128) as (bx, by, bz):
        Q_s = T.alloc_shared((block_M, D), T.float16)
        K_s = T.alloc_shared((block_N, D), T.float16)
        V_s = T.alloc_shared((block_N, D), T.float16)
        score = T.alloc_fragment((block_M, block_N), T.float32)
        weight = T.alloc_fragment((block_M, block_N), T.float16)
        acc = T.alloc_fragment((block_M, D), T.float32)
        highest = T.alloc_fragment((block_M,), T.float32)
        before = T.alloc_fragment((block_M,), T.float32)
        total = T.alloc_fragment((block_M,), T.float32)
        row = T.alloc_fragment((block_M,), T.float32)
        T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_s)
        T.clear(acc)
        T.clear(total)
        T.fill(highest, -T.infinity(T.float32))
        end = T.min((bx + 1) * block_M, S) if causal else S
        for k in T.Pipelined(T.ceildiv(end, block_N), num_stages=2):
            T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_s)
            for i, j in T.Parallel(block_M, block_N):
                column = k * block_N + j
                seen = column < S and (not causal or column <= bx * block_M + i)
                score[i, j] = T.if_then_else(seen, 0.0, -T.infinity(T.float32))
            T.gemm(Q_s, K_s, score, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_s)
            T.copy(highest, before)
            T.reduce_max(score, highest, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                score[i, j] = T.exp2((score[i, j] - highest[i]) * scale)
            T.reduce_sum(score, row, dim=1)
            for i in T.Parallel(block_M):
                before[i] = T.exp2((before[i] - highest[i]) * scale)
                total[i] = total[i] * before[i] + row[i]
            for i, j in T.Parallel(block_M, D):
                acc[i, j] *= before[i]
            T.copy(score, weight)
            T.gemm(weight, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
        for i, j in T.Parallel(block_M, D):
            acc[i, j] /= total[i]
        T.copy(acc, O[bz, by, bx * block_M : (bx + 1) * block_M, :])
    return O


def attention_macros(seq_len, causal, scale, accum, block_M, block_N):
    @T.macro
    def mask(score: T.FragmentBuffer([block_M, block_N], accum), k: T.int32, bx: T.int32):
        if causal:
            for i, j in T.Parallel(block_M, block_N):
                row, column = bx * block_M + i, k * block_N + j
                score[i, j] = T.if_then_else(
                    row >= column and column < seq_len, 0, -T.infinity(score.dtype)
                )
        else:
            for i, j in T.Parallel(block_M, block_N):
                score[i, j] = T.if_then_else(k * block_N + j < seq_len, 0, -T.infinity(score.dtype))

    @T.macro
    def online_softmax(score, weight, highest, before, row, total):
        T.copy(highest, before)
        T.reduce_max(score, highest, dim=1, clear=False)
        for i in T.Parallel(block_M):
            before[i] = T.exp2(before[i] * scale - highest[i] * scale)
        for i, j in T.Parallel(block_M, block_N):
            score[i, j] = T.exp2(score[i, j] * scale - highest[i] * scale)
        T.reduce_sum(score, row, dim=1)
        for i in T.Parallel(block_M):
            total[i] = total[i] * before[i] + row[i]
        T.copy(score, weight)

    return mask, online_softmax


def attention_lazy(batch, heads, seq_len, dim, causal=False, block_M=64, block_N=64):
    scale = (1.0 / dim) ** 0.5 * 1.44269504  # log2(e)
    shape = [batch, heads, seq_len, dim]
    dtype, accum = "float16", "float"

    mask, online_softmax = attention_macros(seq_len, causal, scale, accum, block_M, block_N)

    @T.prim_func
    def attention(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_s = T.alloc_shared([block_M, dim], dtype)
            K_s = T.alloc_shared([block_N, dim], dtype)
            V_s = T.alloc_shared([block_N, dim], dtype)
            score = T.alloc_fragment([block_M, block_N], accum)
            weight = T.alloc_fragment([block_M, block_N], dtype)
            acc = T.alloc_fragment([block_M, dim], accum)
            highest = T.alloc_fragment([block_M], accum)
            before = T.alloc_fragment([block_M], accum)
            row = T.alloc_fragment([block_M], accum)
            total = T.alloc_fragment([block_M], accum)
            T.annotate_layout({Q_s: T.Layout(Q_s.shape, lambda i, j: (i, j))})
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_s)
            T.fill(acc, 0)
            T.fill(total, 0)
            T.fill(highest, -T.infinity(accum))
            steps = (
                T.min(T.ceildiv(seq_len, block_N), T.ceildiv((bx + 1) * block_M, block_N))
                if causal
                else T.ceildiv(seq_len, block_N)
            )
            for k in T.Pipelined(steps, num_stages=1):
                T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_s)
                mask(score, k, bx)
                T.gemm(Q_s, K_s, score, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                online_softmax(score, weight, highest, before, row, total)
                for i, j in T.Parallel(block_M, dim):
                    acc[i, j] *= before[i]
                T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_s)
                T.gemm(weight, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                acc[i, j] /= total[i]
            T.copy(acc, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return attention
