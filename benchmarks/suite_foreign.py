"""Kernels of others: the cost of a call, and the time of the kernel beside Triton's own launcher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

import tileops
import tileops.language as T
from benchmarks.harness import Result, cost_result, time_batches, time_host
from benchmarks.programs import bench_add

# Rows, columns, inner extent: aligned, an odd number of rows, of inner elements, a single column.
PRODUCTS = {
    "aligned": (4096, 4096, 4096), "odd rows": (4095, 4096, 4096),
    "odd inner extent": (4096, 4096, 4095), "stride 1": (8192, 1, 8192),
}  # fmt: skip
CALLS = 4  # on different memory


@triton.jit
def added(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(z + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def multiplied(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + i[:, None] * sam + k[None, :] * sak
    right = b + k[:, None] * sbk + j[None, :] * sbn
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        if EVEN_K:
            x = tl.load(left, mask=i[:, None] < M, other=0.0)
            y = tl.load(right, mask=j[None, :] < N, other=0.0)
        else:
            x = tl.load(left, mask=(i[:, None] < M) & (k[None, :] < K - start), other=0.0)
            y = tl.load(right, mask=(j[None, :] < N) & (k[:, None] < K - start), other=0.0)
        total = tl.dot(x, y, total)
        left += BK * sak
        right += BK * sbk
    tl.store(
        c + i[:, None] * scm + j[None, :] * scn, total, mask=(i[:, None] < M) & (j[None, :] < N)
    )


@tileops.jit(name="bench_foreign_add")
def foreign_add(X, Y):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y: T.Tensor((N,), T.float32)
    Z = T.empty((N,), T.float32)
    with T.Extern():
        added[(triton.cdiv(N, 1024),)](X, Y, Z, N, BLOCK=1024)
    return Z


@tileops.jit(name="bench_foreign_matmul")
def foreign_matmul(A, B):
    M, N, K = T.dynamic("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Extern():
        multiplied[(triton.cdiv(M, 128), triton.cdiv(N, 128))](
            A, B, C, M, N, K, A.stride(0), A.stride(1), B.stride(0), B.stride(1), C.stride(0),
            C.stride(1), BM=128, BN=128, BK=64, EVEN_K=K % 64 == 0, num_warps=8, num_stages=3,
        )  # fmt: skip
    return C


def launched_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What an author writes around the kernel."""
    z = torch.empty_like(x)
    n = x.numel()
    added[(triton.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)
    return z


def launched_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What an author writes around the kernel."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    multiplied[(triton.cdiv(m, 128), triton.cdiv(n, 128))](
        a, b, c, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0),
        c.stride(1), BM=128, BN=128, BK=64, EVEN_K=k % 64 == 0, num_warps=8, num_stages=3,
    )  # fmt: skip
    return c


def as_triton_op() -> Any:
    """The kernel as torch wraps it by hand."""

    @torch.library.triton_op("bench_foreign::add", mutates_args={})
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.empty_like(x)
        n = x.numel()
        torch.library.wrap_triton(added)[(triton.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)
        return z

    return add


def call_results() -> Iterator[Result]:
    """A call with two inputs and one output: beside torch.add, Triton's launcher and triton_op."""
    x, y = (torch.randn(256, device="cuda") for _ in range(2))
    wrapped = as_triton_op()
    for run in (foreign_add, launched_add, wrapped):
        if not torch.equal(run(x, y), x + y):
            raise AssertionError(f"{run} is wrong")
    timings = time_host(
        {
            "foreign": lambda: foreign_add(x, y),
            "tile": lambda: bench_add(x, y),
            "torch.add": lambda: torch.add(x, y),
            "Triton's launcher": lambda: launched_add(x, y),
            "triton_op": lambda: wrapped(x, y),
        }
    )
    for baseline, target in (("torch.add", 1.10), ("Triton's launcher", 0.45), ("triton_op", 0.25)):
        yield cost_result(
            f"host time of a call of a foreign kernel, against {baseline}", timings, "foreign", baseline, target=target
        )  # fmt: skip
    yield cost_result(
        "host time of a call: a foreign kernel, a tile kernel",
        timings,
        "foreign",
        "tile",
        target=1.02,
    )
    yield cost_result("host time of a tile op beside it", timings, "tile", "torch.add")


def kernel_results() -> Iterator[Result]:
    """Device time of one product, by our launch and by Triton's."""
    for name, (m, n, k) in PRODUCTS.items():
        inputs = [
            tuple(torch.randn(*s, device="cuda", dtype=torch.float16) / 8 for s in ((m, k), (k, n)))
            for _ in range(CALLS)
        ]
        for a, b in inputs:
            if not torch.equal(foreign_matmul(a, b), launched_matmul(a, b)):
                raise AssertionError(f"{name}: the product differs from that of Triton's launcher")
        timings = time_batches(
            {
                "foreign": [lambda a=a, b=b: foreign_matmul(a, b) for a, b in inputs],
                "Triton's launcher": [lambda a=a, b=b: launched_matmul(a, b) for a, b in inputs],
            }
        )
        yield cost_result(
            f"device time of a foreign product, {name} ({m} x {n} x {k})",
            timings, "foreign", "Triton's launcher", target=1.01,
        )  # fmt: skip


def results() -> Iterator[Result]:
    """All of it; needs a GPU."""
    yield from call_results()
    yield from kernel_results()
