"""The index scores of sparse attention: rectified fp8 products, weighted and summed over heads."""

import torch

from benchmarks.pair import Pair, random_normal


def program(T, M, N, H, D, block_N=256, block_Q=4, stages=2, threads=512):
    fp8 = "float8_e4m3fn"

    @T.prim_func
    def main(
        Q: T.Tensor((M * H, D), fp8),
        K: T.Tensor((N, D), fp8),
        K_scale: T.Tensor((N,), "float32"),
        weights: T.Tensor((M, H), "float32"),
        ends: T.Tensor((M,), "int32"),  # a query sees the keys before its end; ascending
        scores: T.Tensor((M, N), "float32"),  # zero where not seen
    ):
        with T.Kernel(T.ceildiv(M, block_Q), threads=threads) as bx:
            Q_s = T.alloc_shared((block_Q * H, D), fp8)
            K_s = T.alloc_shared((block_N, D), fp8)
            scale = T.alloc_fragment((block_N,), "float32")
            weight = T.alloc_fragment((block_Q, H), "float32")
            products = T.alloc_fragment((block_N, block_Q * H), "float32")
            terms = T.reshape(products, (block_N, block_Q, H))
            sums = T.alloc_fragment((block_N, block_Q), "float32")
            T.copy(Q[bx * block_Q * H, 0], Q_s)
            T.copy(weights[bx * block_Q, 0], weight)
            last = ends[T.min(M - 1, bx * block_Q + block_Q - 1)]
            for n in T.Pipelined(T.ceildiv(last, block_N), num_stages=stages):
                T.copy(K[n * block_N, 0], K_s)
                T.copy(K_scale[n * block_N], scale)
                T.clear(products)
                T.gemm(K_s, Q_s, products, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                for j, q, h in T.Parallel(block_N, block_Q, H):
                    terms[j, q, h] = T.max(terms[j, q, h], 0) * weight[q, h] * scale[j]
                T.reduce_sum(terms, sums, dim=2)
                for q, j in T.Parallel(block_Q, block_N):
                    if n * block_N + j < ends[bx * block_Q + q]:
                        scores[bx * block_Q + q, n * block_N + j] = sums[j, q]

    return main


def inputs(M, N, H, D):
    ends = torch.arange(N - M + 1, N + 1).int()  # the last M of N tokens
    return (
        random_normal(M * H, D, dtype="float8_e4m3fn"),
        random_normal(N, D, dtype="float8_e4m3fn"),
        torch.rand(N) + 0.5,
        torch.randn(M, H),
        ends,
        torch.zeros(M, N),
    )


def reference(Q, K, K_scale, weights, ends, scores, M, N, H, D):
    out = torch.zeros(M, N, dtype=torch.float64, device=Q.device)
    keys = K.double() * K_scale.double()[:, None]
    for h in range(H):
        products = Q.view(M, H, D)[:, h].double() @ keys.T
        out += weights[:, h, None].double() * products.relu()
    seen = torch.arange(N, device=Q.device) < ends[:, None]
    return (out.where(seen, 0.0),)


PAIRS = (
    Pair(
        # DeepSeek-V3.2: 64 heads of 128; 4096 queries of a prompt of 8192 tokens.
        "indexer fp8 4096x8192x64x128", program, inputs, reference, outputs=(5,),
        # Hopper's fp8 units cut a sum of 128 products at 13 fraction bits in 4 steps: below 2^-11
        # of each of the 64 terms, which are of random sign, as is their sum.
        spread=2.0**-9,
        sizes={"M": 4096, "N": 8192, "H": 64, "D": 128},
        tiles={"block_Q": 2},
        small={"M": 30, "N": 100, "H": 32, "D": 32},
        small_tiles={"block_N": 64, "block_Q": 2, "threads": 128},
        flops=lambda M, N, H, D: 2.0 * H * D * M * (N - M / 2),
    ),
)  # fmt: skip
