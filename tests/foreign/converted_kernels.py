"""Kernels of authors who know nothing of tileops, in Triton, CUDA C++ and PTX."""

import triton
import triton.language as tl

from tests.foreign import kernels

matmul = triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 64, "BK": 32}, num_warps=8, num_stages=3),
    ],
    key=["M", "N", "K"],
)(triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BK"] == 0})(kernels.matmul))


@triton.jit
def attention(q, k, v, o, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    first = tl.program_id(0) * BM
    head = tl.program_id(1)
    queries = q.load([head, first, 0]).reshape(BM, D)
    best = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n in range(0, length, BN):
        keys = k.load([head, n, 0]).reshape(BN, D)
        scores = tl.dot(queries, keys.T) * (scale * 1.44269504)
        scores = tl.where((n + tl.arange(0, BN))[None, :] < length, scores, float("-inf"))
        new = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        kept = tl.exp2(best - new)
        total = total * kept + tl.sum(weights, 1)
        values = v.load([head, n, 0]).reshape(BN, D)
        acc = tl.dot(weights.to(values.dtype), values, acc * kept[:, None])
        best = new
    o.store([head, first, 0], (acc / total[:, None]).to(tl.float16).reshape(1, BM, D))


@triton.jit
def _combine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def scan(a, b, h, length, step, BLOCK: tl.constexpr):
    row = tl.program_id(0) * step
    state = 0.0
    for start in range(0, length, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(a + row + i, mask=i < length, other=1.0).to(tl.float32)
        y = tl.load(b + row + i, mask=i < length, other=0.0).to(tl.float32)
        factor, added = tl.associative_scan((x, y), 0, _combine)
        states = added + factor * state
        tl.store(h + row + i, states, mask=i < length)
        state = tl.sum(tl.where(i == start + BLOCK - 1, states, 0.0), 0)


@triton.jit
def products(
    a, b, parts, M, N, K, sam, sbk, size,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(part * BK, K, BK * SPLIT):
        k = start + tl.arange(0, BK)
        x = tl.load(
            a + i[:, None] * sam + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0
        )
        y = tl.load(
            b + k[:, None] * sbk + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0
        )
        acc = tl.dot(x, y, acc)
    tl.store(
        parts + part * size + i[:, None] * N + j[None, :],
        acc,
        mask=(i[:, None] < M) & (j[None, :] < N),
    )


@triton.jit
def added(parts, c, size, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * size + i, mask=i < size, other=0.0)
    tl.store(c + i, total, mask=i < size)


TRANSPOSE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * 8) transpose(const T* x, T* y, int rows, int cols) {
  __shared__ T tile[TILE][TILE + 1];
  int col = blockIdx.x * TILE + threadIdx.x;
  for (int i = threadIdx.y; i < TILE; i += 8) {
    int row = blockIdx.y * TILE + i;
    if (row < rows && col < cols) tile[i][threadIdx.x] = x[(long long)row * cols + col];
  }
  __syncthreads();
  int out = blockIdx.y * TILE + threadIdx.x;
  for (int i = threadIdx.y; i < TILE; i += 8) {
    int row = blockIdx.x * TILE + i;
    if (row < cols && out < rows) y[(long long)row * rows + out] = tile[threadIdx.x][i];
  }
}
"""

BOXES = """
#include <cuda.h>
extern "C" __global__ void __launch_bounds__(128)
doubled_boxes(const __grid_constant__ CUtensorMap boxes, float* y, int rows, int cols) {
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ alignas(8) unsigned long long arrived;
  unsigned bar = (unsigned)__cvta_generic_to_shared(&arrived);
  unsigned to = (unsigned)__cvta_generic_to_shared(tile);
  int row = blockIdx.y * 16, col = blockIdx.x * 32;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 2048;" ::"r"(bar) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&boxes), "r"(col), "r"(row), "r"(bar)
        : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
        : "=r"(done) : "r"(bar) : "memory");
  for (int i = threadIdx.x; i < 16 * 32; i += 128) {
    int r = row + i / 32, c = col + i % 32;
    if (r < rows && c < cols) y[(long long)r * cols + c] = 2 * tile[i];
  }
}
"""

AXPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn)
.reqntid 256, 1, 1
{
 .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %d<6>;
 ld.param.u64 %d1, [px]; ld.param.u64 %d2, [py]; ld.param.f32 %f1, [pa]; ld.param.u32 %r1, [pn];
 mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r2, 256, %r3;
 setp.ge.s32 %p, %r4, %r1; @%p ret;
 mul.wide.s32 %d3, %r4, 4; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;
 ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d2];
 fma.rn.f32 %f3, %f2, %f1, %f3; st.global.f32 [%d2], %f3; ret;
}
"""
