"""The tile programs of the templates: what their configs are counted on."""

from __future__ import annotations

import tileops.language as T


def matmul(
    sizes, dtypes, trans_A, trans_B, with_bias, block_M, block_N, block_K, num_stages, threads
):
    """A product of two matrices, with a bias for each column if wanted."""
    (M, N, K), (dtype, out_dtype, accum_dtype) = sizes, dtypes

    @T.prim_func
    def matmul(
        A: T.Tensor((K, M) if trans_A else (M, K), dtype),
        B: T.Tensor((N, K) if trans_B else (K, N), dtype),
        Bias: T.Tensor((N if with_bias else 1,), out_dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            a = T.alloc_shared((block_K, block_M) if trans_A else (block_M, block_K), dtype)
            b = T.alloc_shared((block_N, block_K) if trans_B else (block_K, block_N), dtype)
            c = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if trans_A:
                    T.copy(A[k * block_K, by * block_M], a)
                else:
                    T.copy(A[by * block_M, k * block_K], a)
                if trans_B:
                    T.copy(B[bx * block_N, k * block_K], b)
                else:
                    T.copy(B[k * block_K, bx * block_N], b)
                T.gemm(a, b, c, transpose_A=trans_A, transpose_B=trans_B)
            if with_bias:
                for i, j in T.Parallel(block_M, block_N):
                    c[i, j] += T.cast(Bias[bx * block_N + j], accum_dtype)
            T.copy(c, C[by * block_M, bx * block_N])

    return matmul.program


def gemv(sizes, dtypes, trans_B, with_bias, block_N, block_K, threads):
    """A matrix times a vector, rows of the matrix in blocks."""
    (N, K), (dtype, out_dtype, accum_dtype) = sizes, dtypes

    @T.prim_func
    def gemv(
        A: T.Tensor((K,), dtype),
        B: T.Tensor((N, K) if trans_B else (K, N), dtype),
        Bias: T.Tensor((N if with_bias else 1,), out_dtype),
        C: T.Tensor((N,), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            products = T.alloc_fragment((block_N, block_K), accum_dtype)
            total = T.alloc_fragment((block_N,), accum_dtype)
            T.clear(products)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_N, block_K):
                    if trans_B:
                        b = B[bx * block_N + i, k * block_K + j]
                        products[i, j] += T.cast(A[k * block_K + j], accum_dtype) * b
                    else:
                        b = B[k * block_K + j, bx * block_N + i]
                        products[i, j] += T.cast(A[k * block_K + j], accum_dtype) * b
            T.reduce_sum(products, total, dim=1)
            for i in T.Parallel(block_N):
                if with_bias:
                    total[i] += T.cast(Bias[bx * block_N + i], accum_dtype)
            T.copy(total, C[bx * block_N])

    return gemv.program


def elementwise(length, dtype, block, threads):
    """One operation on each element."""

    @T.prim_func
    def elementwise(A: T.Tensor((length,), dtype), B: T.Tensor((length,), dtype)):
        with T.Kernel(T.ceildiv(length, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + T.cast(1, dtype)

    return elementwise.program


def reduction(rows_in_all, length, dtype, rows, step, threads):
    """Sums of rows, in parts of ``step`` elements."""
    accum_dtype = T.float32 if dtype.is_float and dtype.bits < 64 else dtype

    @T.prim_func
    def reduction(A: T.Tensor((rows_in_all, length), dtype), B: T.Tensor((rows_in_all,), dtype)):
        with T.Kernel(T.ceildiv(rows_in_all, rows), threads=threads) as bx:
            part = T.alloc_fragment((rows, step), accum_dtype)
            total = T.alloc_fragment((rows,), accum_dtype)
            T.clear(total)
            for k in T.serial(T.ceildiv(length, step)):
                T.copy(A[bx * rows, k * step], part)
                T.reduce_sum(part, total, dim=1, clear=False)
            T.copy(total, B[bx * rows])

    return reduction.program


def attention(sizes, is_causal, dtypes, block_M, block_N, num_stages, threads):
    """Softmax of scaled products of queries and keys, times values, for each head."""
    (heads, length, kv_length, dim), (dtype, out_dtype, accum_dtype) = sizes, dtypes

    @T.prim_func
    def attention(
        Q: T.Tensor((heads, length, dim), dtype),
        K: T.Tensor((heads, kv_length, dim), dtype),
        V: T.Tensor((heads, kv_length, dim), dtype),
        O: T.Tensor((heads, length, dim), out_dtype),
    ):
        with T.Kernel(T.ceildiv(length, block_M), heads, threads=threads) as (bx, head):
            q = T.alloc_shared((block_M, dim), dtype)
            k = T.alloc_shared((block_N, dim), dtype)
            v = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), accum_dtype)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), accum_dtype)
            top = T.alloc_fragment((block_M,), accum_dtype)
            before = T.alloc_fragment((block_M,), accum_dtype)
            part = T.alloc_fragment((block_M,), accum_dtype)
            total = T.alloc_fragment((block_M,), accum_dtype)
            T.copy(Q[head, bx * block_M, 0], q)
            T.clear(out)
            T.clear(total)
            T.fill(top, -T.infinity(accum_dtype))
            past = kv_length - length
            end = T.min(kv_length, (bx + 1) * block_M + past) if is_causal else kv_length
            for step in T.Pipelined(T.ceildiv(end, block_N), num_stages=num_stages):
                T.copy(K[head, step * block_N, 0], k)
                T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True)
                for i, j in T.Parallel(block_M, block_N):
                    column = step * block_N + j
                    seen = column < kv_length
                    if is_causal:
                        seen = T.all(seen, column <= bx * block_M + i + past)
                    scores[i, j] = T.if_then_else(seen, scores[i, j], -1e30)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(
                        (scores[i, j] - top[i]) * (1.4426950408889634 * dim**-0.5)
                    )
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_M):
                    before[i] = T.exp2((before[i] - top[i]) * (1.4426950408889634 * dim**-0.5))
                    total[i] = total[i] * before[i] + part[i]
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= before[i]
                T.copy(scores, weights)
                T.copy(V[head, step * block_N, 0], v)
                T.gemm(weights, v, out)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, O[head, bx * block_M, 0])

    return attention.program
