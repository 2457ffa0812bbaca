"""The main job in one file: a tile program becomes a PyTorch op, on the GPU if there is one."""

import time

import torch

import tileops
import tileops.language as T


@tileops.jit
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


class Layer(torch.nn.Module):
    """A module that uses the op like any other."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``relu(x @ weight) + 1``."""
        return matmul_relu(x, self.weight) + 1.0


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"the CPU ({tileops.target.host_cpu_level()})"
    )
    print(f"running on {name}")
    torch.manual_seed(0)
    a = torch.randn(500, 384, device=device, dtype=torch.float16)
    b = torch.randn(384, 640, device=device, dtype=torch.float16)
    reference = (a.double() @ b.double()).relu()

    start = time.perf_counter()
    c = matmul_relu(a, b)
    if device == "cuda":
        torch.cuda.synchronize()
    print(
        "first call (traces, compiles or finds it in the cache): "
        f"{time.perf_counter() - start:.3f} s"
    )

    # The inputs are exact in float64, so the error is that of float32 sums (negligible here: K =
    # 384) and one rounding to float16, half a unit in the last place: 2^-11 relative.
    error = ((c.double() - reference).abs() / reference.abs().clamp_min(1.0)).max().item()
    print(
        f"largest relative error against float64: {error:.2e} "
        f"(float16 rounds by up to {2**-11:.2e})"
    )
    if not error < 2**-10:
        raise SystemExit("the result is wrong")

    if not torch.equal(torch.ops.tileops.matmul_relu(a, b), c):
        raise SystemExit("torch.ops.tileops.matmul_relu differs from the function")
    print("torch.ops.tileops.matmul_relu(a, b): the same op, equal bit for bit")

    layer = Layer(b)
    compiled = torch.compile(layer, fullgraph=True)
    if not torch.allclose(compiled(a), layer(a), rtol=2**-10, atol=2**-10):
        raise SystemExit("torch.compile changed the result")
    print("torch.compile(model, fullgraph=True): traced without a graph break")

    milliseconds = tileops.profiler.do_bench(lambda: matmul_relu(a, b))
    print(f"time of one call: {milliseconds * 1e3:.1f} us")
    kernel = matmul_relu.compile(a, b)
    print(f"generated code: {kernel.cache_path}")


if __name__ == "__main__":
    main()
