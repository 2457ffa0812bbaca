"""Programs of single threads with matrices: products of tiles, instructions by hand, lines of tiles.

Numbers are small multiples of powers of two, so sums are exact in every order.
"""

from __future__ import annotations

import torch

import tileops.language as T
from tests.programs.construct import Construct, ints


# -- T.gemm beside statements of threads -----------------------------------------------------------
def decoded_by_threads(A, B):
    """Threads decode nibbles into a tile, which the warps multiply, in a loop of loads."""
    A: T.Tensor((40, 64), T.bfloat16)
    B: T.Tensor((48, 32), T.uint8)
    C = T.empty((40, 48), T.float32)
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        a = T.alloc_shared((40, 32), T.bfloat16)
        b = T.alloc_shared((48, 32), T.bfloat16)
        c = T.alloc_fragment((40, 48), T.float32)
        packed = T.alloc_local((4,), T.uint8)
        numbers = T.alloc_local((8,), T.bfloat16)
        T.clear(c)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 32], a)
            for r in T.serial(3):
                at = r * 64 + tx
                for v in T.vectorized(4):
                    packed[v] = B[at // 4, k * 16 + at % 4 * 4 + v]
                for v in T.serial(8):
                    nibble = (packed[v // 2] >> (v % 2 * 4)) & 15
                    numbers[v] = T.cast(T.shfl_sync(nibble, T.get_lane_idx()), T.bfloat16) - 8
                for v in T.vectorized(8):
                    b[at // 4, at % 4 * 8 + v] = numbers[v]
            T.gemm(a, b, c, transpose_B=True)
        T.copy(c, C)
    return C


def decoded_by_threads_expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    numbers = torch.stack([b & 15, b >> 4], 2).reshape(48, 64).double() - 8
    return (a.double() @ numbers.T).float()


@T.macro
def put(Y, number, tile):
    for j, k in T.Parallel(*tile.shape):
        Y[number, j, k] = T.cast(tile[j, k], T.float32)


def products_of_each_dtype(H, F, I, U):
    """Operands of each dtype, as they are and transposed; odd extents; both starts of the sum."""
    H: T.Tensor((2, 33, 40), T.float16)
    F: T.Tensor((2, 32, 24), T.float8_e4m3fn)
    I: T.Tensor((2, 16, 35), T.int8)
    U: T.Tensor((2, 35, 9), T.uint8)
    Y = T.empty((4, 33, 33), T.float32)
    with T.Kernel(1, threads=96):
        tx = T.get_thread_binding()
        all_are = T.syncthreads_and(tx >= 0)
        h = T.alloc_shared((2, 33, 40), T.float16)
        f = T.alloc_shared((2, 32, 24), T.float8_e4m3fn)
        i = T.alloc_shared((2, 16, 35), T.int8)
        u = T.alloc_shared((2, 35, 9), T.uint8)
        hh = T.alloc_fragment((33, 33), T.float16)
        ff = T.alloc_fragment((24, 24), T.float32)
        ii = T.alloc_fragment((16, 16), T.int32)
        uu = T.alloc_fragment((9, 9), T.int32)
        T.copy(H, h)
        T.copy(F, f)
        T.copy(I, i)
        T.copy(U, u)
        T.clear(Y)
        T.fill(hh, 1)
        T.gemm(h[0, :, :], h[1, :, :], hh, transpose_B=True)
        T.gemm(f[0, :, :], f[1, :, :], ff, transpose_A=True, clear_accum=True)
        T.gemm(i[0, :, :], i[1, :, :], ii, transpose_B=True, clear_accum=all_are > 0)
        T.clear(uu)
        T.wgmma_gemm(u[0, :, :], u[1, :, :], uu, transpose_A=True)
        T.wait_wgmma(0)
        put(Y, 0, hh)
        put(Y, 1, ff)
        put(Y, 2, ii)
        put(Y, 3, uu)
    return Y


def products_of_each_dtype_expected(*given: torch.Tensor) -> torch.Tensor:
    h, f, i, u = (x.double() for x in given)
    out = torch.zeros(4, 33, 33, dtype=torch.float64)
    out[0] = h[0] @ h[1].T + 1
    out[1, :24, :24] = f[0].T @ f[1]
    out[2, :16, :16] = i[0] @ i[1].T
    out[3, :9, :9] = u[0].T @ u[1]
    return out.float()


def products_of_wide_floats(S, D):
    """Operands of float32, which GPUs round to tfloat32, and of float64, without instructions."""
    S: T.Tensor((2, 17, 16), T.float32)
    D: T.Tensor((2, 8, 8), T.float64)
    Y = T.empty((2, 17, 17), T.float32)
    with T.Kernel(1, threads=96):
        tx = T.get_thread_binding()
        s = T.alloc_shared((2, 17, 16), T.float32)
        d = T.alloc_shared((2, 8, 8), T.float64)
        ss = T.alloc_fragment((17, 17), T.float32)
        dd = T.alloc_fragment((8, 8), T.float64)
        T.copy(S, s)
        T.copy(D, d)
        T.clear(Y)
        if T.syncthreads_and(tx >= 0) > 0:
            T.gemm(s[0, :, :], s[1, :, :], ss, transpose_B=True, clear_accum=True)
            T.gemm(d[0, :, :], d[1, :, :], dd, clear_accum=True)
        put(Y, 0, ss)
        put(Y, 1, dd)
    return Y


def products_of_wide_floats_expected(s: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2, 17, 17)
    out[0] = (s[0].double() @ s[1].double().T).float()
    out[1, :8, :8] = (d[0] @ d[1]).float()
    return out


# -- matrix instructions by hand -------------------------------------------------------------------
def instructions_by_hand(A, B, C):
    """A tile of 16 x 8 by each warp: rows from ldmatrix, B's as they are and transposed."""
    A: T.Tensor((2, 16, 16), T.float16)
    B: T.Tensor((2, 8, 16), T.float16)
    C: T.Tensor((2, 16, 8), T.float16)
    Y = T.empty((2, 2, 16, 8), T.float32)
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        lane, warp = T.get_lane_idx(), T.get_warp_idx()
        a = T.alloc_shared((2, 16, 16), T.float16)
        b = T.alloc_shared((2, 8, 16), T.float16)
        c = T.alloc_shared((2, 16, 8), T.float16)
        own = T.alloc_local((16,), T.float16)
        sums = T.alloc_local((8,), T.float32)
        T.copy(A, a)
        T.copy(B, b)
        T.copy(C, c)
        T.clear(sums)
        start = T.access_ptr(a[warp, lane % 16, lane // 16 * 8], "r")
        T.ptx_ldmatrix("float16", False, 4, ".b16", own.data, 4, start, 0)
        T.ptx_ldmatrix("float16", False, 2, ".b16", own, 0, b[warp, lane % 8, lane // 8 % 2 * 8])
        multiply(own, 4, own, 0, sums, 4)
        T.ptx_ldmatrix("float16", True, 2, ".b16", own, 12, T.address_of(c[warp, lane % 16, 0]))
        multiply(own, 4, own, 12, sums, 0)
        for s in T.serial(4):
            row, column = lane // 4 + s // 2 * 8, lane % 4 * 2 + s % 2
            Y[0, warp, row, column] = sums[4 + s]
            Y[1, warp, row, column] = sums[s]
    return Y


@T.macro
def multiply(a, at_a, b, at_b, c, at_c):
    T.ptx_mma(
        "float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32",
        a.data, at_a, b.data, at_b, c.data, at_c, False,
    )  # fmt: skip


def instructions_by_hand_expected(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    return torch.stack([a.double() @ b.double().mT, a.double() @ c.double()]).float()


def bytes_by_hand(A, B, F, G):
    """Instructions on integers and floats of 8 bits; each thread loads its own elements."""
    A: T.Tensor((16, 32), T.int8)
    B: T.Tensor((8, 32), T.uint8)
    F: T.Tensor((16, 32), T.float8_e5m2)
    G: T.Tensor((8, 32), T.float8_e4m3fn)
    Y = T.empty((2, 16, 8), T.float32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        a = T.alloc_local((16,), T.int8)
        b = T.alloc_local((8,), T.uint8)
        f = T.alloc_local((16,), T.float8_e5m2)
        g = T.alloc_local((8,), T.float8_e4m3fn)
        c = T.alloc_local((4,), T.int32)
        d = T.alloc_local((4,), T.float32)
        T.clear(c)
        T.clear(d)
        for w, e in T.grid(4, 4):
            a[w * 4 + e] = A[tx // 4 + w % 2 * 8, w // 2 * 16 + tx % 4 * 4 + e]
            f[w * 4 + e] = F[tx // 4 + w % 2 * 8, w // 2 * 16 + tx % 4 * 4 + e]
        for w, e in T.grid(2, 4):
            b[w * 4 + e] = B[tx // 4, w * 16 + tx % 4 * 4 + e]
            g[w * 4 + e] = G[tx // 4, w * 16 + tx % 4 * 4 + e]
        T.ptx_mma(
            "int32", "m16n8k32", "row", "col", "int8", "uint8", "int32", a.data, 0, b.data, 0,
            c.data, 0,
        )  # fmt: skip
        T.ptx_mma(
            "float32", "m16n8k32", "row", "col", "e5m2", "e4m3", "fp32", f.data, 0, g.data, 0,
            d.data, 0,
        )  # fmt: skip
        for s in T.serial(4):
            Y[0, tx // 4 + s // 2 * 8, tx % 4 * 2 + s % 2] = T.cast(c[s], T.float32)
            Y[1, tx // 4 + s // 2 * 8, tx % 4 * 2 + s % 2] = d[s]
    return Y


def bytes_by_hand_expected(*given: torch.Tensor) -> torch.Tensor:
    a, b, f, g = (x.double() for x in given)
    return torch.stack([a @ b.T, f @ g.T]).float()


# -- lines of tiles, and copies that go on ---------------------------------------------------------
def lines_beside_threads(X):
    """Scans and places along lines, of tiles that threads wrote."""
    X: T.Tensor((6, 40), T.float32)
    Y = T.empty((4, 6, 40), T.float32)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        tile = T.alloc_shared((6, 40), T.float32)
        sums = T.alloc_shared((6, 40), T.float32)
        tops = T.alloc_shared((6, 40), T.float32)
        most = T.alloc_fragment((6,), T.int32)
        least = T.alloc_fragment((40,), T.int32)
        for r in T.serial(6):
            tile[r, tx] = T.shfl_xor(X[r, tx ^ 1], 1)
            if tx < 8:
                tile[r, 32 + tx] = X[r, 32 + tx]
        T.cumsum(tile, sums, dim=1, reverse=True)
        T.cummax(tile, tops, dim=0)
        T.argmax(tile, most, dim=1)
        T.argmin(tile, least, dim=0)
        for i, j in T.Parallel(6, 40):
            Y[0, i, j] = sums[i, j]
            Y[1, i, j] = tops[i, j]
            Y[2, i, j] = T.cast(most[i], T.float32)
            Y[3, i, j] = T.cast(least[j], T.float32)
    return Y


def lines_beside_threads_expected(x: torch.Tensor) -> torch.Tensor:
    sums = x.double().flip(1).cumsum(1).flip(1).float()
    most = first_of(x == x.amax(1, keepdim=True), 1)[:, None].expand(6, 40)
    least = first_of(x == x.amin(0, keepdim=True), 0)[None].expand(6, 40)
    return torch.stack([sums, x.cummax(0).values, most.float(), least.float()])


def first_of(holds: torch.Tensor, dim: int) -> torch.Tensor:
    return holds.int().argmax(dim)


def copies_that_go_on(X):
    """Copies by threads and of a tile, two groups in flight, and a predicate."""
    X: T.Tensor((4, 256), T.float16)
    Y = T.empty((4, 256), T.float16)
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        tile = T.alloc_shared((4, 256), T.float16)
        turned = T.alloc_shared((4, 256), T.float16)
        for r in T.serial(3):
            T.ptx_cp_async(
                T.access_ptr(tile[r, tx * 8], "w", 8), T.access_ptr(X[r, tx * 8], "r", 8), 8,
                predicate=tx + r < 32,
            )  # fmt: skip
            T.ptx_commit_group()
        T.async_copy(X[3, :], tile[3, :])
        T.ptx_wait_group(0)
        T.sync_threads()
        other = T.shfl_xor(tx, 3)
        for r in T.serial(4):
            for v in T.vectorized(8):
                turned[r, tx * 8 + v] = tile[r, other * 8 + v]
        T.tma_copy(turned, Y)
        T.tma_store_wait(0)
    return Y


def copies_that_go_on_expected(x: torch.Tensor) -> torch.Tensor:
    held = x.clone().view(4, 32, 8)
    for r in range(3):
        held[r, 32 - r :] = 0
    return held[:, torch.arange(32) ^ 3].reshape(4, 256)


def quarters(*shape: int) -> torch.Tensor:
    return ints(*shape, low=-4, high=5) / 4


MATRICES = [
    Construct(
        decoded_by_threads,
        lambda: (quarters(40, 64).bfloat16(), torch.randint(0, 256, (48, 32), dtype=torch.uint8)),
        decoded_by_threads_expected,
    ),
    Construct(
        products_of_each_dtype,
        lambda: (
            ints(2, 33, 40, low=-3, high=4).half(),
            quarters(2, 32, 24).to(torch.float8_e4m3fn),
            ints(2, 16, 35, low=-128, high=128).to(torch.int8),
            ints(2, 35, 9, low=0, high=256).to(torch.uint8),
        ),
        products_of_each_dtype_expected,
    ),
    Construct(
        products_of_wide_floats,
        lambda: (quarters(2, 17, 16).float(), torch.randint(-9, 10, (2, 8, 8)).double()),
        products_of_wide_floats_expected,
    ),
    Construct(
        instructions_by_hand,
        lambda: (quarters(2, 16, 16).half(), quarters(2, 8, 16).half(), quarters(2, 16, 8).half()),
        instructions_by_hand_expected,
    ),
    Construct(
        bytes_by_hand,
        lambda: (
            ints(16, 32, low=-128, high=128).to(torch.int8),
            ints(8, 32, low=0, high=256).to(torch.uint8),
            quarters(16, 32).to(torch.float8_e5m2),
            quarters(8, 32).to(torch.float8_e4m3fn),
        ),
        bytes_by_hand_expected,
    ),
    Construct(lines_beside_threads, lambda: (ints(6, 40).float(),), lines_beside_threads_expected),
    Construct(copies_that_go_on, lambda: (torch.randn(4, 256).half(),), copies_that_go_on_expected),
]
