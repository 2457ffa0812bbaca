"""Programs whose schedules have what those of ``tests.programs`` lack: loops around loops, conditions."""

from __future__ import annotations

# mypy: ignore-errors
import tileops.language as T

M, N, K, WORKERS = 256, 256, 512, 3


def tile_loop(A, B):
    """Each block takes several tiles in turn."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(WORKERS, threads=256) as worker:
        A_s = T.alloc_shared((128, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((128, 64), T.float32)
        for turn in T.serial(T.ceildiv(M // 128 * (N // 64) - worker, WORKERS)):
            tile = worker + turn * WORKERS
            T.clear(acc)
            for k in T.Pipelined(K // 64, num_stages=3):
                T.copy(A[tile // 4 * 128, k * 64], A_s)
                T.copy(B[k * 64, tile % 4 * 64], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[tile // 4 * 128, tile % 4 * 64])
    return C


def skipped_steps(A, B, skipped):
    """A tensor says which steps a loop leaves out, with their loads."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    skipped: T.Tensor((K // 64,), T.int32)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.clear(acc)
        for k in T.Pipelined(K // 64, num_stages=2):
            if skipped[k] == 0:
                T.copy(A[by * 64, k * 64], A_s)
                T.copy(B[k * 64, bx * 64], B_s)
                T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
    return C


def skipped_products(A, B, skipped):
    """A tensor says which products a loop leaves out; everything is loaded."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    skipped: T.Tensor((K // 64,), T.int32)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.clear(acc)
        for k in T.Pipelined(K // 64, num_stages=2):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            if skipped[k] == 0:
                T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
    return C


def two_products(A, B):
    """Two products of one iteration read the same slots."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        one = T.alloc_fragment((64, 64), T.float32)
        two = T.alloc_fragment((64, 64), T.float32)
        T.clear(one)
        T.clear(two)
        for k in T.Pipelined(K // 64, num_stages=3):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            T.gemm(A_s, B_s, one)
            T.gemm(A_s, B_s, two, transpose_B=True)
        for i, j in T.Parallel(64, 64):
            one[i, j] = one[i, j] + two[i, j]
        T.copy(one, C[by * 64, bx * 64])
    return C


def nested_loops(A, B):
    """A slot of the outer loop is read by all iterations of the inner one."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.clear(acc)
        for u in T.serial(K // 64):
            T.copy(A[by * 64, u * 64], A_s)
            for k in T.Pipelined(N // 64, num_stages=2):
                T.copy(B[u * 64, k * 64], B_s)
                T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
    return C


def product_between(A, B, skipped):
    """A product under a condition comes between two that might overlap."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    skipped: T.Tensor((K // 64,), T.int32)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        more_s = T.alloc_shared((64, 64), T.float16)
        last_s = T.alloc_shared((64, 64), T.float16)
        scores = T.alloc_fragment((64, 64), T.float32)
        weights = T.alloc_fragment((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.clear(acc)
        for k in T.Pipelined(K // 64, num_stages=3):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            T.gemm(A_s, B_s, scores, clear_accum=True)
            T.copy(B[k * 64, 0], more_s)
            if skipped[k] == 0:
                T.gemm(A_s, more_s, scores)
            T.copy(scores, weights)
            T.copy(B[k * 64, 64], last_s)
            T.gemm(weights, last_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
    return C


def start_of_a_block(A, B):
    """A loop begins at the block's number, which is below its constant end."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        last_s = T.alloc_shared((64, 64), T.float16)
        scores = T.alloc_fragment((64, 64), T.float32)
        weights = T.alloc_fragment((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        T.clear(acc)
        for k in T.serial(bx, K // 64):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            T.gemm(A_s, B_s, scores, clear_accum=True)
            T.copy(scores, weights)
            T.copy(B[k * 64, 64], last_s)
            T.gemm(weights, last_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
    return C


def bound_in_a_variable(A, B, steps):
    """The bound of the loop is a variable, which the math role alone has."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    steps: T.Tensor((N // 64,), T.int32)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        count = T.alloc_var(T.int32, 0)
        count = steps[bx]
        T.clear(acc)
        for k in T.serial(count):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
    return C


def bound_written_before(A, B, steps):
    """The bound of the loop is an element of a tensor that the launch writes before."""
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    steps: T.Tensor((N // 64,), T.int32)
    C = T.empty((M, N), T.float16)
    with T.Kernel(N // 64, M // 64, threads=128) as (bx, by):
        A_s = T.alloc_shared((64, 64), T.float16)
        B_s = T.alloc_shared((64, 64), T.float16)
        acc = T.alloc_fragment((64, 64), T.float32)
        steps[bx] = bx + by
        T.clear(acc)
        for k in T.serial(steps[bx]):
            T.copy(A[by * 64, k * 64], A_s)
            T.copy(B[k * 64, bx * 64], B_s)
            T.gemm(A_s, B_s, acc)
        T.copy(acc, C[by * 64, bx * 64])
    return C


SCHEDULED = (
    tile_loop, skipped_steps, skipped_products, two_products, nested_loops, product_between,
    start_of_a_block,
)  # fmt: skip
UNSCHEDULED = (bound_in_a_variable, bound_written_before)
