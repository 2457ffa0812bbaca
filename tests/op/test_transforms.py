"""vmap, autocast, meta tensors and torch.export of ops."""

from __future__ import annotations

import io

import pytest
import torch

import tileops
import tileops.language as T
from tests.op.differentiable import scaled_product
from tests.programs import samples
from tileops.errors import ArgumentError, ArgumentTypeError


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@tileops.jit(name="transforms_row_scale")
def row_scale(X, S, block_N: int = 64):
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), T.float32)
    S: T.Tensor((M,), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, T.ceildiv(N, block_N)) as (bx, by):
        for i in T.Parallel(block_N):
            Y[bx, by * block_N + i] = X[bx, by * block_N + i] * S[bx]
    return Y


def batched_row_scale(info, in_dims, x, s):
    x_dim, s_dim = in_dims
    size = info.batch_size
    x = x.movedim(x_dim, 0) if x_dim is not None else x.expand(size, *x.shape)
    s = s.movedim(s_dim, 0) if s_dim is not None else s.expand(size, *s.shape)
    out = row_scale(x.reshape(-1, x.shape[-1]), s.reshape(-1))
    return out.view(size, -1, x.shape[-1]), 0


row_scale.register_vmap(batched_row_scale)
row_scale.register_autograd(
    lambda ctx, grad: (row_scale(grad, ctx.saved_tensors[1]), (grad * ctx.saved_tensors[0]).sum(1)),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0), (2, 1)])
def test_vmap(in_dims: tuple[int | None, int | None]) -> None:
    shapes = {0: (5, 3, 4), 2: (3, 4, 5), None: (3, 4)}
    vectors = {0: (5, 3), 1: (3, 5), None: (3,)}
    x, s = torch.randn(shapes[in_dims[0]]), torch.randn(vectors[in_dims[1]])
    expected = torch.vmap(lambda x, s: x * s[:, None], in_dims)(x, s)
    assert torch.equal(torch.vmap(row_scale, in_dims)(x, s), expected)
    assert torch.equal(torch.vmap(torch.ops.tileops.transforms_row_scale, in_dims)(x, s), expected)


def test_vmap_runs_the_program_once() -> None:
    x, s = torch.randn(7, 3, 4), torch.randn(3)
    torch.vmap(row_scale, (0, None))(x, s)
    before = tileops.stats()["launches"]
    torch.vmap(row_scale, (0, None))(x, s)
    assert tileops.stats()["launches"] - before == 1


def test_vmap_and_gradient() -> None:
    x, s = torch.randn(7, 3, 4), torch.randn(3, requires_grad=True)
    torch.vmap(row_scale, (0, None))(x, s).sum().backward()
    # a sum of 7 * 4 products in any order
    bound = 28 * torch.finfo(torch.float32).eps * x.abs().sum((0, 2))
    assert bool(((s.grad - x.sum((0, 2))).abs() <= bound).all())


def test_a_vmap_rule_is_a_function() -> None:
    with pytest.raises(ArgumentTypeError, match="register_vmap: expected a function"):
        row_scale.register_vmap(3)


@tileops.jit(name="transforms_half_product", autocast=torch.float16)
def half_product(X, Y, block_N: int = 64):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float16)
    Y: T.Tensor((N,), T.float16)
    Z = T.empty((N,), T.float16)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            Z[bx * block_N + i] = X[bx * block_N + i] * Y[bx * block_N + i]
    return Z


def test_autocast_casts_floating_inputs() -> None:
    x, y = torch.randn(100), torch.randn(100)
    expected = x.half() * y.half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(half_product(x, y), expected)
        assert torch.equal(half_product(x, y.half(), block_N=32), expected)
        assert torch.equal(torch.ops.tileops.transforms_half_product(x, y), expected)
        with pytest.raises(ArgumentTypeError, match="float64"):
            half_product(x.double(), y)
        with torch.autocast("cpu", enabled=False), pytest.raises(ArgumentTypeError):
            half_product(x, y)
    with pytest.raises(ArgumentTypeError, match="expected dtype float16, got float32"):
        half_product(x, y)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_autocast_in_one_graph(backend: str) -> None:
    x, y = torch.randn(100), torch.randn(100)

    def model(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return half_product(a, b)

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    assert torch.equal(compiled(x, y), x.half() * y.half())


def test_autocast_and_gradient() -> None:
    half_product.register_autograd(
        lambda ctx, grad: tuple(half_product(grad, t) for t in reversed(ctx.saved_tensors)),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x, y = (torch.randn(100, requires_grad=True) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = half_product(x, y)
    out.sum().backward()
    assert x.grad.dtype == torch.float32
    assert torch.equal(x.grad, y.detach().half().float())


def test_autocast_takes_a_floating_dtype_and_known_devices() -> None:
    with pytest.raises(ArgumentError, match="expected a floating dtype"):
        tileops.jit(autocast=torch.int32)
    with pytest.raises(ArgumentError, match="expected a device type of cpu, cuda, got 'xpu'"):
        tileops.jit(autocast={"xpu": torch.float16})
    assert tileops.jit(autocast={"cuda": "bfloat16"}) is not None


def test_meta_tensors() -> None:
    x, y = torch.randn(6, 4, device="meta"), torch.randn(6, 4, device="meta")
    out = scaled_product(x, y, 2.0, block_N=32)
    assert (out.device.type, out.shape, out.dtype, out.stride()) == (
        "meta", (6, 4), torch.float32, (4, 1),
    )  # fmt: skip
    d, s = samples.sum_difference(x, y)
    assert (d.shape, d.dtype, s.shape) == ((4, 6), torch.float16, (6, 4))
    assert samples.add_into(x[0], y[0]) is None
    with pytest.raises(ArgumentError, match="expected dimension 1 to be 4"):
        scaled_product(x, torch.randn(6, 5, device="meta"), 2.0)
    assert samples.counted(5, device="meta").shape == (5,)


def test_meta_tensors_with_a_gradient() -> None:
    x, y = (torch.randn(6, 4, device="meta", requires_grad=True) for _ in range(2))
    scaled_product(x, y, 2.0).sum().backward()
    assert (x.grad.shape, x.grad.device.type) == ((6, 4), "meta")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(3, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x * 1
        samples.add_into(y, z)
        d, s = samples.sum_difference(z[None], y[None])
        return scaled_product(self.scale, self.scale, 0.5), samples.scaled(s[0], 3.0), d


def test_export_saved_and_loaded() -> None:
    model = Model()
    x, y = torch.randn(20), torch.randn(20)
    expected = model(x, y)
    size = torch.export.Dim("n", min=2, max=10_000)
    exported = torch.export.export(model, (x, y), dynamic_shapes=({0: size}, {0: size}))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file)
    names = {str(n.target) for n in loaded.graph.nodes if "tileops" in str(n.target)}
    assert {n.split(".")[1] for n in names} == {
        "grad_scaled_product", "sample_add_into", "sample_sum_difference", "sample_scaled",
    }  # fmt: skip
    for got, want in zip(loaded.module()(x, y), expected, strict=True):
        assert torch.equal(got, want)
    x, y = torch.randn(333), torch.randn(333)
    for got, want in zip(loaded.module()(x, y), model(x, y), strict=True):
        assert torch.equal(got, want)
    lowered = loaded.run_decompositions()
    for got, want in zip(lowered.module()(x, y), model(x, y), strict=True):
        assert torch.equal(got, want)
