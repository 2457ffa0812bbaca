"""Reductions and scans of tiles: kinds, dimensions, accumulation, NaN."""

import pytest
import torch

import tileops.language as T
from tests.kit.harness import build_eager

TORCH_REDUCE = {
    "sum": lambda x, d: x.sum(d),
    "max": lambda x, d: x.amax(d),
    "min": lambda x, d: x.amin(d),
    "absmax": lambda x, d: x.abs().amax(d),
    "abssum": lambda x, d: x.abs().sum(d),
}


def reduced(
    X, kind: str, shape: tuple, dim: int, source: str, target: str, clear: bool, start: int
):
    out = tuple(e for d, e in enumerate(shape) if d != dim % len(shape)) or (1,)
    X: T.Tensor(shape, source)
    Y = T.empty(out, target)
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment(shape, source)
        y = T.alloc_fragment(out, target)
        T.copy(X, x)
        T.fill(y, start)
        T.reduce(x, y, kind, dim, clear)
        T.copy(y, Y)
    return Y


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((5, 33), 1),
        ((5, 33), 0),
        ((70,), 0),
        ((3, 9, 5), 1),
        ((3, 9, 5), -1),
        ((1, 200), 1),
        ((4, 1), 1),
    ],
)
@pytest.mark.parametrize("kind", list(TORCH_REDUCE))
def test_reduce(kind, shape, dim, clear):
    x = torch.randint(-50, 50, shape)
    want = TORCH_REDUCE[kind](x, dim)
    if not clear:
        old = torch.tensor(30)
        want = (
            want + old
            if "sum" in kind
            else torch.maximum(want, old)
            if "max" in kind
            else torch.minimum(want, old)
        )
    pairs = [("float32", "float32"), ("int32", "int32"), ("float16", "float32"), ("int8", "int64")]
    turn = list(TORCH_REDUCE).index(kind) + dim + clear
    for source, target in (pairs[turn % 4], pairs[(turn + 1) % 4]):
        kernel = build_eager(
            reduced,
            kind=kind,
            shape=shape,
            dim=dim,
            source=source,
            target=target,
            clear=clear,
            start=30,
        )
        got = kernel(x.to(getattr(torch, source)))
        assert torch.equal(got.long().flatten(), want.flatten()), (source, target)


@pytest.mark.parametrize("kind", ["bitand", "bitor", "bitxor"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "bool"])
def test_bit_reductions(kind, dtype):
    x = torch.randint(0, 2 if dtype == "bool" else 100, (6, 21)).to(getattr(torch, dtype))
    kernel = build_eager(
        reduced, kind=kind, shape=(6, 21), dim=1, source=dtype, target=dtype, clear=True, start=0
    )
    want = []
    for row in x.tolist():
        value = row[0]
        for item in row[1:]:
            value = (
                value & item
                if kind == "bitand"
                else value | item
                if kind == "bitor"
                else value ^ item
            )
        want.append(value)
    assert kernel(x).tolist() == want


def test_reduction_accumulates_in_the_destination():
    x = torch.ones(64, 4096, dtype=torch.float16)
    kernel = build_eager(
        reduced,
        kind="sum",
        shape=(64, 4096),
        dim=1,
        source="float16",
        target="bfloat16",
        clear=True,
        start=0,
    )
    # 32 partial sums of 128 ones are exact in bfloat16, and so are their pairwise sums.
    assert (kernel(x) == 4096).all()
    # With 7 fractional bits lost on the way, most sums miss the correctly rounded one.
    x = (1 + torch.rand(64, 4096)).half()
    assert (kernel(x) != x.double().sum(1).to(torch.bfloat16)).any()


def nan_max(X, keep: bool):
    X: T.Tensor((2, 8), "float16")
    Y = T.empty((2,), "float16")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_fragment((2, 8), "float16")
        y = T.alloc_fragment((2,), "float16")
        T.copy(X, x)
        T.reduce_max(x, y, dim=1, nan_propagate=keep)
        T.copy(y, Y)
    return Y


def test_reduce_max_and_nan():
    x = torch.randn(2, 8).half()
    x[0, 3] = float("nan")
    got = build_eager(nan_max, keep=False)(x)
    assert torch.equal(got, torch.stack([x[0][~x[0].isnan()].max(), x[1].max()]))
    got = build_eager(nan_max, keep=True)(x)
    assert got[0].isnan()
    assert got[1] == x[1].max()


def scanned(X, kind: str, dim: int, reverse: bool, in_place: bool):
    X: T.Tensor((6, 11), "int32")
    Y = T.empty((6, 11), "int32")
    with T.Kernel(1, threads=128) as bx:
        x = T.alloc_shared((6, 11), "int32")
        y = T.alloc_shared((6, 11), "int32")
        T.copy(X, x)
        scan = {"sum": T.cumsum, "max": T.cummax, "min": T.cummin}[kind]
        if in_place:
            scan(x, dim=dim, reverse=reverse)
            T.copy(x, Y)
        else:
            scan(x, y, dim, reverse)
            T.copy(y, Y)
    return Y


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_scan(kind, dim, reverse, in_place):
    x = torch.randint(-20, 20, (6, 11), dtype=torch.int32)
    y = x.flip(dim) if reverse else x
    y = y.cumsum(dim) if kind == "sum" else getattr(y, f"cum{kind}")(dim).values
    want = y.flip(dim) if reverse else y
    got = build_eager(scanned, kind=kind, dim=dim, reverse=reverse, in_place=in_place)(x)
    assert torch.equal(got.long(), want.long())
