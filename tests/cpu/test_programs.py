"""Whole programs on the CPU path against float64: the ones that users write first."""

import math

import pytest
import torch

import tileops.language as T
from tests.kit.harness import build_eager


def matmul_relu(
    A, B, block_M: int = 128, block_N: int = 128, block_K: int = 32, dtype: str = "float32"
):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), dtype)
    B: T.Tensor((K, N), dtype)
    C = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), dtype)
        B_s = T.alloc_shared((block_K, block_N), dtype)
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


def dynamic_matmul(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32):
    M, N, K = T.dynamic("M, N, K")
    A: T.Tensor((M, K), T.float32)
    B: T.Tensor((K, N), T.float32)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_s = T.alloc_shared((block_M, block_K), T.float32)
        B_s = T.alloc_shared((block_K, block_N), T.float32)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_s)
            T.copy(B[k * block_K, bx * block_N], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


def add(A, B, block: int = 1024):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B: T.Tensor((N,), T.float32)
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
    return C


def rms_norm(X, W, eps: float = 1e-6, block: int = 1, dtype: str = "float32"):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), dtype)
    W: T.Tensor((N,), dtype)
    Y = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
        x = T.alloc_fragment((block, N), T.float32)
        square = T.alloc_fragment((block, N), T.float32)
        total = T.alloc_fragment((block,), T.float32)
        T.copy(X[bx * block, 0], x)
        for i, j in T.Parallel(block, N):
            square[i, j] = x[i, j] * x[i, j]
        T.reduce_sum(square, total, dim=1)
        for i in T.Parallel(block):
            total[i] = T.rsqrt(total[i] / N + eps)
        for i, j in T.Parallel(block, N):
            x[i, j] = x[i, j] * total[i] * W[j]
        T.copy(x, Y[bx * block, 0])
    return Y


def softmax(X, block_M: int = 4, block_N: int = 128):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
        x = T.alloc_fragment((block_M, block_N), T.float32)
        peak = T.alloc_fragment((block_M,), T.float32)
        before = T.alloc_fragment((block_M,), T.float32)
        part = T.alloc_fragment((block_M,), T.float32)
        total = T.alloc_fragment((block_M,), T.float32)
        T.fill(peak, -T.infinity(T.float32))
        T.clear(total)
        T.annotate_safe_value({X: -T.infinity(T.float32)})
        for k in T.serial(T.ceildiv(N, block_N)):
            T.copy(X[bx * block_M, k * block_N], x)
            T.copy(peak, before)
            T.reduce_max(x, peak, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp(x[i, j] - peak[i])
            T.reduce_sum(x, part, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * T.exp(before[i] - peak[i]) + part[i]
        for k in T.serial(T.ceildiv(N, block_N)):
            T.copy(X[bx * block_M, k * block_N], x)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.exp(x[i, j] - peak[i]) / total[i]
            T.copy(x, Y[bx * block_M, k * block_N])
    return Y


def attention(Q, K, V, causal: bool, block_M: int = 64, block_N: int = 64, dtype: str = "float16"):
    batch, heads, seq, dim = T.const("batch, heads, seq, dim")
    Q: T.Tensor((batch, seq, heads, dim), dtype)
    K: T.Tensor((batch, seq, heads, dim), dtype)
    V: T.Tensor((batch, seq, heads, dim), dtype)
    O = T.empty((batch, seq, heads, dim), dtype)
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    with T.Kernel(T.ceildiv(seq, block_M), heads, batch, threads=128) as (bx, by, bz):
        Q_s = T.alloc_shared((block_M, dim), dtype)
        K_s = T.alloc_shared((block_N, dim), dtype)
        V_s = T.alloc_shared((block_N, dim), dtype)
        scores = T.alloc_fragment((block_M, block_N), T.float32)
        scores_cast = T.alloc_fragment((block_M, block_N), dtype)
        out = T.alloc_fragment((block_M, dim), T.float32)
        peak = T.alloc_fragment((block_M,), T.float32)
        before = T.alloc_fragment((block_M,), T.float32)
        rescale = T.alloc_fragment((block_M,), T.float32)
        part = T.alloc_fragment((block_M,), T.float32)
        total = T.alloc_fragment((block_M,), T.float32)
        T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_s)
        T.clear(out)
        T.clear(total)
        T.fill(peak, -T.infinity(T.float32))
        steps = T.ceildiv((bx + 1) * block_M, block_N) if causal else T.ceildiv(seq, block_N)
        for k in T.Pipelined(T.min(steps, T.ceildiv(seq, block_N)), num_stages=2):
            T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_s)
            for i, j in T.Parallel(block_M, block_N):
                visible = k * block_N + j < seq
                if causal:
                    scores[i, j] = T.if_then_else(
                        T.And(visible, bx * block_M + i >= k * block_N + j),
                        0,
                        -T.infinity(T.float32),
                    )
                else:
                    scores[i, j] = T.if_then_else(visible, 0, -T.infinity(T.float32))
            T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(peak, before)
            T.reduce_max(scores, peak, dim=1, clear=False)
            for i in T.Parallel(block_M):
                rescale[i] = T.exp2(before[i] * scale - peak[i] * scale)
            for i, j in T.Parallel(block_M, block_N):
                scores[i, j] = T.exp2(scores[i, j] * scale - peak[i] * scale)
            T.reduce_sum(scores, part, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * rescale[i] + part[i]
            T.copy(scores, scores_cast)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] *= rescale[i]
            T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_s)
            T.gemm(scores_cast, V_s, out, policy=T.GemmWarpPolicy.FullRow)
        for i, j in T.Parallel(block_M, dim):
            out[i, j] /= total[i]
        T.copy(out, O[bz, bx * block_M : (bx + 1) * block_M, by, :])
    return O


def split_k(A, B, block: int = 32, splits: int = 4):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), T.float32)
    B: T.Tensor((K, N), T.float32)
    C = T.empty((M, N), T.float32)
    parts = T.alloc_global((splits, M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), splits, threads=128) as (bx, by, bz):
        A_s = T.alloc_shared((block, block), T.float32)
        B_s = T.alloc_shared((block, block), T.float32)
        acc = T.alloc_fragment((block, block), T.float32)
        T.clear(acc)
        steps = T.ceildiv(T.ceildiv(K, block), splits)
        for k in T.Pipelined(steps, num_stages=2):
            T.copy(A[by * block, (bz * steps + k) * block], A_s)
            T.copy(B[(bz * steps + k) * block, bx * block], B_s)
            T.gemm(A_s, B_s, acc)
        for i, j in T.Parallel(block, block):
            parts[bz, by * block + i, bx * block + j] = acc[i, j]
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        acc = T.alloc_fragment((block, block), T.float32)
        T.clear(acc)
        for s in T.serial(splits):
            for i, j in T.Parallel(block, block):
                acc[i, j] += parts[s, by * block + i, bx * block + j]
        T.copy(acc, C[by * block, bx * block])
    return C


def float_bound(length: int) -> float:
    """The error of a float32 sum of ``length`` products of standard normals: u * sqrt(n) * a few deviations."""
    return 2.0**-24 * math.sqrt(length) * 8 * math.sqrt(length)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (1, 1, 1), (77, 200, 45), (130, 7, 300)])
def test_matmul_relu(dtype, m, n, k):
    a, b = torch.randn(m, k).to(getattr(torch, dtype)), torch.randn(k, n).to(getattr(torch, dtype))
    kernel = build_eager(matmul_relu, consts={"M": m, "N": n, "K": k}, dtype=dtype)
    got = kernel(a, b, threads=2)
    want = (a.double() @ b.double()).relu()
    unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    bound = want.abs() * unit * 1.01 + float_bound(k)
    assert ((got.double() - want).abs() <= bound).all()


def test_dynamic_sizes_share_one_kernel():
    kernel = build_eager(dynamic_matmul)
    for m, n, k in [(1, 1, 1), (64, 64, 64), (65, 130, 31), (0, 5, 3), (5, 3, 0), (200, 3, 77)]:
        a, b = torch.randn(m, k), torch.randn(k, n)
        want = a.double() @ b.double()
        assert ((kernel(a, b, threads=2).double() - want).abs() <= float_bound(k)).all()


@pytest.mark.parametrize("n", [1, 7, 1_000_003])
def test_add(n):
    a, b = torch.randn(n), torch.randn(n)
    assert torch.equal(build_eager(add, consts={"N": n})(a, b, threads=2), a + b)


@pytest.mark.parametrize("n", [1, 768, 1000, 5120])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rms_norm(n, dtype):
    x, w = torch.randn(9, n).to(getattr(torch, dtype)), torch.randn(n).to(getattr(torch, dtype))
    for block in (1, 4):
        got = build_eager(rms_norm, consts={"M": 9, "N": n}, dtype=dtype, block=block)(x, w)
        want = x.double() * torch.rsqrt(x.double().pow(2).mean(1, keepdim=True) + 1e-6) * w.double()
        unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
        # Two float32 products and the norm's own error (its sum has positive terms) before the last rounding.
        assert ((got.double() - want).abs() <= want.abs() * (unit + 8 * 2.0**-24) + 1e-7).all()


@pytest.mark.parametrize("n", [1, 100, 128, 1000])
def test_softmax(n):
    x = torch.randn(10, n) * 5
    got = build_eager(softmax, consts={"M": 10, "N": n})(x)
    want = torch.softmax(x.double(), 1)
    # exp has 1 ulp and its argument, up to 40, half an ulp: 40 * 2^-24 absolute; the sum's error is smaller.
    assert ((got.double() - want).abs() <= want * 60 * 2.0**-24 + 1e-30).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq", [1, 77, 128, 200])
@pytest.mark.parametrize(("dim", "dtype"), [(64, "float16"), (128, "bfloat16")])
def test_attention(causal, seq, dim, dtype):
    shape = (2, seq, 3, dim)
    q, k, v = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(3))
    sizes = {"batch": 2, "heads": 3, "seq": seq, "dim": dim}
    got = build_eager(attention, consts=sizes, causal=causal, dtype=dtype)(q, k, v, threads=2)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(t.double().transpose(1, 2) for t in (q, k, v)), is_causal=causal
    ).transpose(1, 2)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    # The probabilities are rounded once (relative unit of a convex combination of v) and the result once more.
    bound = unit * (v.double().abs().amax() + want.abs()) + 1e-5
    assert ((got.double() - want).abs() <= bound).all()


def test_split_k():
    m, n, k = 45, 70, 300
    a, b = torch.randn(m, k), torch.randn(k, n)
    got = build_eager(split_k, consts={"M": m, "N": n, "K": k})(a, b, threads=2)
    assert ((got.double() - a.double() @ b.double()).abs() <= float_bound(k)).all()
