"""Atomic updates, im2col, device checks, prints, wrapping integers and lifetimes."""

import pytest
import torch

import tileops.language as T
from tests.kit.harness import KernelFailed, build_eager


def histogram(X, Y, bins: int = 17, block: int = 64):
    N = T.const("N")
    X: T.Tensor((N,), "int32")
    Y: T.Tensor((bins,), "int32")
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            if bx * block + i < N:
                T.atomic_add(Y[X[bx * block + i]], 1)


def test_atomic_histogram_on_two_threads():
    x = torch.randint(-2, 20, (10_001,), dtype=torch.int32)
    y = torch.zeros(17, dtype=torch.int32)
    build_eager(histogram, consts={"N": 10_001})(x, y, threads=2)
    inside = x[(x >= 0) & (x < 17)]
    assert torch.equal(y, torch.bincount(inside, minlength=17).int())


def atomic_tile(X, Y, name: str, dtype: str):
    X: T.Tensor((8, 4, 6), dtype)
    Y: T.Tensor((5, 6), dtype)
    with T.Kernel(8, threads=128) as bx:
        t = T.alloc_fragment((4, 6), dtype)
        T.copy(X[bx, :, :], t)
        getattr(T, name)(Y[2, 0], t)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize("name", ["atomic_add", "atomic_max", "atomic_min"])
def test_atomic_tiles(name, dtype):
    x = torch.randint(-9, 9, (8, 4, 6)).to(getattr(torch, dtype))
    y = torch.zeros(5, 6, dtype=x.dtype)
    build_eager(atomic_tile, name=name, dtype=dtype)(x, y, threads=2)
    whole = {
        "atomic_add": x.sum(0),
        "atomic_max": x.amax(0).clamp(min=0),
        "atomic_min": x.amin(0).clamp(max=0),
    }
    want = torch.zeros_like(y)
    want[2:] = whole[name][:3]  # the fourth row lies outside
    assert torch.equal(y, want)


def tickets(Y):
    Y: T.Tensor((1,), "int32")
    Z = T.empty((64,), "int32")
    with T.Kernel(64, threads=128) as bx:
        mine = T.atomic_add(Y[0], 1, return_prev=True)
        Z[mine] = bx
    return Z


def test_atomic_result_is_the_value_before():
    y = torch.zeros(1, dtype=torch.int32)
    got = build_eager(tickets)(y, threads=2)
    assert y.item() == 64
    assert sorted(got.tolist()) == list(range(64))


def reducer(X):
    X: T.Tensor((16, 24), "float32")
    Y = T.empty((16,), "float32")
    with T.Kernel(1, threads=128) as bx:
        total = T.alloc_reducer((16,), "float32", op="sum")
        out = T.alloc_fragment((16,), "float32")
        T.reducer_init(total)
        for i, j in T.Parallel(16, 24):
            T.reducer_update(total[i], X[i, j])
        T.finalize_reducer(total, out)
        T.copy(out, Y)
    return Y


def test_reducer():
    x = torch.randint(-9, 9, (16, 24)).float()
    assert torch.equal(build_eager(reducer)(x), x.sum(1))


def convolution_tile(X, kernel: int, stride: int, dilation: int, pad: int):
    N, H, W, C = T.const("N, H, W, C")
    X: T.Tensor((N, H, W, C), "float32")
    oh = (H + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    ow = (W + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    rows, depth = N * oh * ow, kernel * kernel * C
    Y = T.empty((rows, depth), "float32")
    with T.Kernel(T.ceildiv(depth, 16), T.ceildiv(rows, 8), threads=128) as (bx, by):
        t = T.alloc_shared((8, 16), "float32")
        T.im2col(X, t, by, bx, kernel, stride, dilation, pad)
        T.copy(t, Y[by * 8, bx * 16])
    return Y


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pad"),
    [(3, 1, 1, 1), (3, 2, 1, 0), (1, 1, 1, 0), (3, 1, 2, 2)],
)
def test_im2col(kernel, stride, dilation, pad):
    x = torch.randn(2, 7, 6, 3)
    program = build_eager(
        convolution_tile,
        consts={"N": 2, "H": 7, "W": 6, "C": 3},
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        pad=pad,
    )
    columns = torch.nn.functional.unfold(
        x.permute(0, 3, 1, 2), kernel, dilation=dilation, padding=pad, stride=stride
    )  # (N, C * k * k, positions), channel outermost
    want = (
        columns.view(2, 3, kernel * kernel, -1).permute(0, 3, 2, 1).reshape(-1, kernel * kernel * 3)
    )
    assert torch.equal(program(x), want)


def checked(X):
    X: T.Tensor((40,), "int32")
    Y = T.empty((40,), "int32")
    with T.Kernel(10, threads=128) as bx:
        for i in T.serial(4):
            T.device_assert(X[bx * 4 + i] >= 0, "negative")
            Y[bx * 4 + i] = X[bx * 4 + i]
    return Y


def test_failed_check_reports_its_statement():
    x = torch.arange(40, dtype=torch.int32)
    kernel = build_eager(checked)
    assert torch.equal(kernel(x), x)
    x[25] = -1
    with pytest.raises(KernelFailed) as error:
        kernel(x)
    assert error.value.status.code == 2
    assert error.value.status.statement >= 0


def any_and_all(X):
    X: T.Tensor((4, 9), "int32")
    Y = T.empty((4, 2), "bool")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment((4, 9), "int32")
        T.copy(X, x)
        for i in T.serial(4):
            Y[i, 0] = T.any_of(x[i, :])
            Y[i, 1] = T.all_of(x[i, :])
    return Y


def test_any_and_all():
    x = torch.randint(-1, 2, (4, 9), dtype=torch.int32)
    x[1] = 0
    x[2] = 7
    got = build_eager(any_and_all)(x)
    assert torch.equal(got, torch.stack([x.ne(0).any(1), x.ne(0).all(1)], 1))


def printed(X):
    X: T.Tensor((2,), "float32")
    with T.Kernel(1, threads=128) as bx:
        t = T.alloc_fragment((2,), "float32")
        T.copy(X, t)
        T.print(t, "tile")
        T.print(X[0] + 1, "sum")


def test_print(capfd):
    import ctypes

    build_eager(printed)(torch.tensor([1.5, -2.0]))
    ctypes.CDLL(None).fflush(None)
    text = capfd.readouterr().out
    assert "tile" in text
    assert "t[1] = -2" in text
    assert "= 2.5" in text


def wrapping(X):
    X: T.Tensor((16,), "int32")
    Y = T.empty((16,), "int32")
    Z = T.empty((16,), "int8")
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(16):
            Y[i] = X[i] * 1664525 + 1013904223
            Z[i] = T.cast(X[i], "int8") * T.cast(X[i], "int8") + T.cast(100, "int8")
    return Y, Z


def test_integers_wrap():
    x = torch.randint(-(2**31), 2**31 - 1, (16,), dtype=torch.int32)
    y, z = build_eager(wrapping)(x)
    assert torch.equal(y, ((x.long() * 1664525 + 1013904223 + 2**31) % 2**32 - 2**31).int())
    small = x.to(torch.int8).int()
    assert torch.equal(z, ((small * small + 100 + 128) % 256 - 128).to(torch.int8))


def var_lifetime():
    Y = T.empty((3, 4), "int32")
    with T.Kernel(3, threads=128) as bx:
        for k in T.serial(4):
            count = T.alloc_var("int32")
            count += k + 1
            Y[bx, k] = count
    return Y


def test_uninitialised_var_is_zero_once_a_block():
    assert build_eager(var_lifetime)().tolist() == [[1, 3, 6, 10]] * 3
