"""Copies between tensors and tiles: bounds, strides, transpositions, views, bits."""

import pytest
import torch

import tileops.language as T
from tests.kit.harness import build_eager


def window(X, rows: int, columns: int, r0: int, c0: int, fill: float, dtype: str = "float32"):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), dtype)
    Y = T.empty((rows, columns), dtype)
    start = T.empty((1,), "int32")
    with T.Kernel(1, threads=128) as bx:
        tile = T.alloc_shared((rows, columns), dtype)
        if fill != 0:
            T.annotate_safe_value({X: fill})
        r = T.alloc_var("int32", r0)
        c = T.alloc_var("int32", c0)
        start[0] = r
        T.copy(X[r, c], tile)
        T.copy(tile, Y)
    return Y, start


@pytest.mark.parametrize("fill", [0.0, -7.5])
@pytest.mark.parametrize(
    ("r0", "c0"), [(0, 0), (-3, -2), (5, 9), (-100, 0), (2, 100), (8, -30), (0, 3)]
)
def test_reads_out_of_bounds(r0, c0, fill):
    x = torch.randn(9, 11)
    got, _ = build_eager(
        window, consts={"M": 9, "N": 11}, rows=6, columns=8, r0=r0, c0=c0, fill=fill
    )(x)
    want = torch.full((6, 8), fill)
    for i in range(6):
        for j in range(8):
            if 0 <= r0 + i < 9 and 0 <= c0 + j < 11:
                want[i, j] = x[r0 + i, c0 + j]
    assert torch.equal(got, want)


def scatter_window(X, Y, r0: int, c0: int, through_nest: bool):
    M, N = T.const("M, N")
    X: T.Tensor((6, 8), "float32")
    Y: T.Tensor((M, N), "float32")
    with T.Kernel(1, threads=128) as bx:
        tile = T.alloc_fragment((6, 8), "float32")
        r = T.alloc_var("int32", r0)
        c = T.alloc_var("int32", c0)
        T.copy(X, tile)
        if through_nest:
            for i, j in T.Parallel(6, 8):
                Y[r + i, c + j] = tile[i, j]
        else:
            T.copy(tile, Y[r, c])


@pytest.mark.parametrize("through_nest", [False, True])
@pytest.mark.parametrize(("r0", "c0"), [(0, 0), (-3, -2), (5, 9), (-100, 0), (2, 100), (8, -30)])
def test_writes_out_of_bounds_are_dropped(r0, c0, through_nest):
    x, guard = torch.randn(6, 8), torch.zeros(30, 11)
    y = guard[10:19]
    build_eager(scatter_window, consts={"M": 9, "N": 11}, r0=r0, c0=c0, through_nest=through_nest)(
        x, y
    )
    want = torch.zeros(9, 11)
    for i in range(6):
        for j in range(8):
            if 0 <= r0 + i < 9 and 0 <= c0 + j < 11:
                want[r0 + i, c0 + j] = x[i, j]
    assert torch.equal(y, want)
    assert not guard[:10].any()
    assert not guard[19:].any()


def global_to_global(X, r0: int):
    X: T.Tensor((7, 5), "float16")
    Y = T.empty((9, 5), "float32")
    with T.Kernel(1, threads=128) as bx:
        T.fill(Y, 3)
        r = T.alloc_var("int32", r0)
        T.copy(X[r : r + 4, :], Y[r + 3 : r + 7, :])
    return Y


@pytest.mark.parametrize("r0", [0, 4, -2, -5, 7])
def test_copy_between_tensors(r0):
    x = torch.randn(7, 5).half()
    want = torch.full((9, 5), 3.0)
    for i in range(4):
        if 0 <= r0 + 3 + i < 9:
            want[r0 + 3 + i] = x[r0 + i].float() if 0 <= r0 + i < 7 else 0.0
    assert torch.equal(build_eager(global_to_global, r0=r0)(x), want)


def strided(X, block: int = 8):
    M, N, S = T.const("M, N, S")
    X: T.StridedTensor((M, N), (S, 1), "float32")
    Y = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
        t = T.alloc_fragment((block, N), "float32")
        T.copy(X[bx * block, 0], t)
        for i, j in T.Parallel(block, N):
            Y[bx * block + i, j] = t[i, j] + X[bx * block + i, j]
    return Y


def test_strided_tensor():
    x = torch.randn(13, 40)[:, 3:16]
    assert torch.equal(build_eager(strided, consts={"M": 13, "N": 13, "S": 40})(x), x + x)


def transposed_nest(X, block: int = 16):
    M, N = T.const("M, N")
    X: T.Tensor((M, N), "float32")
    Y = T.empty((N, M), "float32")
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        for i, j in T.Parallel(block, block):
            Y[bx * block + j, by * block + i] = X[by * block + i, bx * block + j]
    return Y


def test_transposed_indices():
    x = torch.randn(37, 21)
    assert torch.equal(build_eager(transposed_nest, consts={"M": 37, "N": 21})(x, threads=2), x.T)


def transpose_tile(X):
    X: T.Tensor((12, 7), "float32")
    Y = T.empty((7, 12), "float32")
    with T.Kernel(1, threads=128) as bx:
        a = T.alloc_shared((12, 7), "float32")
        b = T.alloc_shared((7, 12), "float32")
        T.copy(X, a)
        T.transpose(a, b)
        T.copy(b, Y)
    return Y


def test_transpose():
    x = torch.randn(12, 7)
    assert torch.equal(build_eager(transpose_tile)(x), x.T)


def views(X):
    X: T.Tensor((4, 6), "float32")
    Y = T.empty((24,), "float32")
    Z = T.empty((4, 6), "int32")
    with T.Kernel(1, threads=128) as bx:
        t = T.alloc_shared((4, 6), "float32")
        flat = T.reshape(t, (24,))
        bits = T.view(t, (4, 6), "int32")
        T.copy(X, t)
        for i in T.Parallel(12):
            flat[i] = flat[i] * 2
        T.copy(flat, Y)
        T.copy(bits, Z)
    return Y, Z


def test_views_alias():
    x = torch.randn(4, 6)
    y, z = build_eager(views)(x)
    want = x.flatten().clone()
    want[:12] *= 2
    assert torch.equal(y, want)
    assert torch.equal(z, want.view(torch.int32).reshape(4, 6))


def reinterpreted(X):
    X: T.Tensor((65536,), "float16")
    Y = T.empty((65536,), "uint16")
    Z = T.empty((65536,), "float16")
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(65536):
            Y[i] = T.reinterpret(X[i], "uint16")
            Z[i] = T.reinterpret(
                T.reinterpret(X[i], "uint16") ^ T.cast(0x8000, "uint16"), "float16"
            )
    return Y, Z


def test_reinterpret_keeps_every_bit():
    bits = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    y, z = build_eager(reinterpreted)(bits.view(torch.float16))
    assert torch.equal(y.int(), bits.int())
    number = ~bits.view(torch.float16).isnan()
    assert torch.equal(z.view(torch.uint16).int()[number], (bits.int() ^ 0x8000)[number])


def permuted(X):
    X: T.Tensor((16, 16), "float32")
    Y = T.empty((16, 16), "float32")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment((16, 16), "float32")
        y = T.alloc_fragment((16, 16), "float32")
        T.copy(X, x)
        for i, j in T.Parallel(16, 16):
            item = x[j, i]
            y[i, j] = item
        T.copy(y, Y)
    return Y


def test_tiles_of_one_nest_do_not_share_space():
    x = torch.randn(16, 16)
    assert torch.equal(build_eager(permuted)(x), x.T)
