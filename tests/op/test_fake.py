"""The fake and the real op: equal outputs, equal refusals, and what torch's own checks say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tileops
import tileops.language as T
from tests.op import factories
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, ToolchainError

Call = tuple[Callable[[], object], tuple[object, ...], dict[str, object]]


def rows(layout: str) -> torch.Tensor:
    x = torch.randn(12, 30)
    return {
        "contiguous": x,
        "transposed": x.t()[:10],
        "every second column": x[:, ::2],
        "sliced": x[2:8, 3:],
        "expanded": x[:, :1].expand(12, 30),
        "one column": x[:, :1],
        "offset": x.reshape(-1)[3:303].view(10, 30),
        "odd stride of a size-1 dim": torch.as_strided(x, (4, 1), (30, 999)),
        "empty": x[:0],
        "no columns": x[:, :0],
    }[layout]


@tileops.jit(name="fake_rows")
def padded_rows(X, block: int = 32):
    """``X``, whose rows lie one stride apart and whose columns side by side."""
    M, N, S = T.dynamic("M, N, S")
    X: T.StridedTensor((M, N), (S, 1), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, T.ceildiv(N, block), threads=32) as (bx, by):
        for j in T.Parallel(block):
            Y[bx, by * block + j] = X[bx, by * block + j]
    return Y


LAYOUTS = (
    "contiguous",
    "transposed",
    "every second column",
    "sliced",
    "expanded",
    "one column",
    "offset",
    "odd stride of a size-1 dim",
    "empty",
    "no columns",
)
CALLS: dict[str, Call] = {
    "axpy": (lambda: samples.axpy.op, (vector(1000), vector(1000), 0.5), {}),
    "axpy of one": (lambda: samples.axpy.op, (vector(1), vector(1), -1.0), {}),
    "axpy of none": (lambda: samples.axpy.op, (vector(0), vector(0), 0.5), {}),
    "axpy with a tunable": (
        lambda: samples.axpy.op,
        (vector(1000), vector(1000), 2.0),
        {"block_N": 64},
    ),
    "add_into": (lambda: samples.add_into.op, (vector(300), vector(300)), {}),
    "sum_difference": (
        lambda: samples.sum_difference.op,
        (torch.randn(5, 100), torch.randn(5, 100)),
        {},
    ),
    "scaled": (
        lambda: samples.scaled.op,
        (vector(70, torch.float16),),
        {"factor": 3.0, "dtype": "float16"},
    ),
    "counted": (lambda: samples.counted.op, (17, 5), {"device": "cpu"}),
    "lazy": (lambda: samples.lazy_add(100).op, (vector(100), vector(100)), {}),
    "rows of none, strides of nothing": (
        lambda: padded_rows.op,
        (vector(200).as_strided((0, 5), (7, 3)),),
        {},
    ),
    "padded rows": (lambda: padded_rows.op, (torch.randn(4, 9)[:, :5],), {}),
    **{f"row_sums {name}": (lambda: samples.row_sums.op, (rows(name),), {}) for name in LAYOUTS},
}


def clones(args: tuple[object, ...]) -> list[object]:
    return [a.clone(memory_format=torch.preserve_format) if torch.is_tensor(a) else a for a in args]


def facts(result: object) -> list[tuple[object, ...]]:
    tensors = result if isinstance(result, (tuple, list)) else [result]
    return [
        (tuple(t.shape), t.stride(), t.dtype, t.device.type, t.storage_offset())
        for t in tensors
        if torch.is_tensor(t)
    ]


@pytest.mark.parametrize("name", CALLS)
def test_fake_equals_real(name: str) -> None:
    op, args, kwargs = CALLS[name]
    real = op()(*clones(args), **kwargs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        made = [mode.from_tensor(a) if torch.is_tensor(a) else a for a in args]
        fake = op()(*made, **kwargs)
    assert facts(fake) == facts(real)


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name: str) -> None:
    op, args, kwargs = CALLS[name]
    torch.library.opcheck(op(), tuple(clones(args)), kwargs)


BAD: dict[str, Call] = {
    "rank": (lambda: samples.axpy.op, (torch.ones(2, 2), vector(4), 1.0), {}),
    "dtype": (lambda: samples.axpy.op, (vector(4, torch.float64), vector(4), 1.0), {}),
    "contradiction": (lambda: samples.axpy.op, (vector(4), vector(5), 1.0), {}),
    "strides": (lambda: samples.axpy.op, (vector(8)[::2], vector(4), 1.0), {}),
    "equation": (lambda: samples.row_sums.op, (torch.ones(3, 2),), {}),
    "constant": (lambda: samples.lazy_add(100).op, (vector(99), vector(99)), {}),
}


@pytest.mark.parametrize("name", BAD)
def test_the_fake_refuses_what_the_real_op_refuses(name: str) -> None:
    op, args, kwargs = BAD[name]
    with pytest.raises(RuntimeError) as real:
        op()(*args, **kwargs)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError) as fake:
        op()(*(mode.from_tensor(a) if torch.is_tensor(a) else a for a in args), **kwargs)
    # The classes are equal, and both texts begin with op and argument.
    assert type(fake.value) is type(real.value)
    start = str(real.value).split("expected")[0]
    assert start in str(fake.value)
    assert "argument '" in start


def test_the_meta_device_runs_the_fake() -> None:
    out = samples.axpy(vector(10).to("meta"), vector(10).to("meta"), 1.0)
    assert out.device.type == "meta"
    assert out.shape == (10,)


@pytest.mark.parametrize("device", [None, "cpu", "meta"])
def test_ops_without_tensors(device: str | None) -> None:
    factories.check(device)


def test_an_impossible_extent_is_refused_by_both() -> None:
    for mode in (FakeTensorMode(), contextlib.nullcontext()):
        with mode, pytest.raises(ArgumentError, match="an output would have an impossible extent"):
            samples.counted(-1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_device_that_is_not_there() -> None:
    # A torch that was built for CUDA has such devices; what lacks is the driver.
    error, said = (
        (ArgumentError, "'device': expected a device that torch has")
        if torch.version.cuda is None
        else (ToolchainError, "cannot open the CUDA driver .*install the NVIDIA driver")
    )
    with pytest.raises(error, match=said):
        samples.counted(5, device="cuda")


def first_of(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k <= x.shape[0])
    return samples.axpy(x[:k], x[:k], 2.0)


def halves(x: torch.Tensor) -> torch.Tensor:
    return samples.axpy(x[x > 0], x[x < 0], 2.0)


def every_second(x: torch.Tensor) -> torch.Tensor:
    return samples.row_sums(x.nonzero().float())


@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (first_of, (torch.randn(9), torch.tensor(5))),
        (halves, (torch.tensor([1.0, -2.0, 3.0, -4.0]),)),
        (every_second, (torch.ones(6),)),
    ],
)
def test_sizes_that_depend_on_data(function: Callable[..., object], args: tuple[object]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*args), function(*args))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_sizes_that_depend_on_data_are_checked_when_the_graph_runs() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(halves, fullgraph=True)
    compiled(torch.tensor([1.0, -2.0]))
    with pytest.raises(RuntimeError):
        compiled(torch.tensor([1.0, -2.0, 3.0]))
