"""Tuning: the first call of a matrix product chooses its tiles, later ones use what was found."""

import torch

import tileops
import tileops.language as T


@tileops.autotune(
    configs=tileops.space(
        block_M=[32, 64], block_N=[32, 64], where=lambda block_M, block_N: block_M <= block_N
    ),
    ref_prog=lambda a, b: (a.float() @ b.float()).half(),
    warmup=2,
    rep=10,
)
@tileops.jit
def tuned_matmul(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32):
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
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(256, 128, device=device, dtype=torch.float16)
    b = torch.randn(128, 192, device=device, dtype=torch.float16)
    c = tuned_matmul(a, b)
    # Products of float16 are summed in float32 and rounded once: an ulp of the result, and ties.
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=1e-2)
    kernel = tuned_matmul.compile(a, b)
    print(f"best config: {kernel.config}, {kernel.latency:.4f} ms")


if __name__ == "__main__":
    main()
