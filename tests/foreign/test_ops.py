"""Programs with foreign kernels as torch ops: schema, outputs without data, export, targets."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tileops
import tileops.language as T
from tests.foreign import kernels, programs
from tests.foreign.launched import Launched
from tileops.compiler.toolchain import triton_version
from tileops.errors import ArgumentError
from tileops.ir.codec import decode_program, encode_program


def test_the_schema_is_that_of_the_signature() -> None:
    op = Launched(programs.rms, {"D": "float32"}).op
    assert (
        op.spec.schema == "foreign_rms(Tensor X, Tensor W, float eps=1e-06) -> (Tensor, Tensor)"
        or (op.spec.schema == "foreign_rms(Tensor X, Tensor W, float eps) -> (Tensor, Tensor)")
    )


def test_outputs_without_data() -> None:
    x, w = torch.empty(5, 64, device="meta"), torch.empty(64, device="meta")
    y, rstd = programs.rms(x, w, 1e-6)
    assert (y.shape, rstd.shape, y.device.type) == ((5, 64), (5,), "meta")
    with FakeTensorMode():
        found = programs.matmul(
            torch.empty(3, 4, dtype=torch.float16), torch.empty(4, 6, dtype=torch.float16)
        )
        assert (found.shape, found.dtype) == ((3, 6), torch.float16)


def test_export_with_a_run_time_size() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return programs.add(x, y) * 2

    n = torch.export.Dim("n")
    example = (torch.empty(8), torch.empty(8))
    with FakeTensorMode(allow_non_fake_inputs=True):
        exported = torch.export.export(Model(), example, dynamic_shapes=({0: n}, {0: n}))
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert targets[0] == "tileops.foreign_add.default"


def test_a_program_with_tile_and_foreign_launches_runs_them_in_order() -> None:
    @tileops.jit
    def foreign_mixed(X):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        first, Y = T.alloc_global((N,), T.float32), T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 128)) as b:
            for i in T.Parallel(128):
                first[b * 128 + i] = X[b * 128 + i] + 1.0
        with T.Extern():
            kernels.doubled[(4,)](first, first, N, BLOCK=256)
        with T.Kernel(T.ceildiv(N, 128)) as b:
            for i in T.Parallel(128):
                Y[b * 128 + i] = first[b * 128 + i] - 1.0
        return Y

    op = Launched(foreign_mixed)
    entry = op.compiled(op.wanted({"N": 4096}))
    record = entry.manifest["record"]
    assert [launch["entry"] for launch in record["launches"]] == [
        "foreign_mixed_0", "doubled", "foreign_mixed_1",
    ]  # fmt: skip
    assert record["launches"][1]["params"][:2] == [{"kind": "workspace", "index": 0}] * 2
    assert record["choice"]["words"] == [2]
    program = op.provider.request_for(op.wanted({"N": 4096})).program
    assert decode_program(encode_program(program)) == program


def test_optional_tensors_and_what_triton_removes() -> None:
    @tileops.jit
    def foreign_optional(X, Bias=None, scale: T.float32 = 1.0):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Bias: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            kernels.optional_bias[(T.ceildiv(N, 64),)](
                X, Bias, Y, N, scale if Bias is None else 0.5, Bias is None, BLOCK=64
            )
        return Y

    op = Launched(foreign_optional)
    given = [
        p["kind"]
        for p in op.compiled(op.wanted({"N": 4})).manifest["record"]["launches"][0]["params"]
    ]
    assert given[:5] == ["tensor", "tensor", "tensor", "slot", "number"]
    record = op.compiled(op.wanted({"N": 4})).manifest["record"]
    assert record["launches"][0]["params"][4] == {"kind": "number", "value": 0.5, "type": "f32"}


def test_a_stride_that_has_no_constant_form_is_passed_as_a_number() -> None:
    @tileops.jit
    def foreign_strided(X):
        N, s = T.dynamic("N, s")
        X: T.StridedTensor((N,), (s,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            kernels.by_strides[(1,)](X, Y, X.stride(0), N, BLOCK=64)
        return Y

    op = Launched(foreign_strided)
    entry = op.compiled(op.wanted({"N": 16, "s": 1}))
    assert entry.manifest["record"]["choice"]["words"] == [1, 2]
    kinds = [p["kind"] for p in entry.manifest["record"]["launches"][0]["params"]]
    # Triton of some versions has no `to` for a constant 1.
    assert kinds.count("slot") in (1, 2)
    assert triton_version()


def test_artifacts_name_no_place_of_this_machine() -> None:
    op = Launched(programs.rms, {"D": "float32"})
    entry = op.compiled(op.wanted({"R": 3, "N": 64}))
    assert not [name for name, data in entry.files.items() if b"/tests/" in data or b"#loc" in data]
    assert entry.files["launch0.source.py"].startswith(b"def rms_fwd(X, Y, W, R, sx")


def test_a_fallback_runs_on_the_cpu() -> None:
    @tileops.jit
    def foreign_with_fallback(X, Y, factor: float = 1.0):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y: T.Tensor((N,), T.float32)
        Z = T.empty((N,), T.float32)
        with T.Extern():
            kernels.add[(T.ceildiv(N, 64),)](X, Y, Z, N, BLOCK=64)
        return Z

    program = foreign_with_fallback
    program.fallback("cpu", lambda x, y, factor: (x + y) * factor)
    x, y = torch.randn(10), torch.randn(10)
    assert torch.equal(program(x, y), x + y)
    assert torch.equal(program(x, y, factor=2.0), (x + y) * 2)
    assert torch.equal(torch.ops.tileops.foreign_with_fallback(x, y), x + y)
    assert torch.equal(torch.compile(program, fullgraph=True, backend="aot_eager")(x, y), x + y)
    torch.library.opcheck(program.op, (x, y))
    program.register_autograd(lambda ctx, grad: (grad, grad))
    x.requires_grad_()
    program(x, y).sum().backward()
    assert torch.equal(x.grad, torch.ones(10))
    with pytest.raises(ArgumentError, match=r"argument 'Y': expected dimension 0 to be 10"):
        program(x.detach(), y[:3])
    program.fallback("cpu", lambda x, y: x)
    with pytest.raises(ArgumentError, match=r"its fallback returns one of its arguments"):
        program(x.detach(), y)
    program.fallback("cpu", lambda x, y: (x + y)[:3])
    with pytest.raises(ArgumentError, match=r"must return float32\[10\]; got float32\[3\]"):
        program(x.detach(), y)
    with pytest.raises(ArgumentError, match=r"fallback: expected the device 'cpu', got 'cuda'"):
        program.fallback("cuda", lambda x, y: x)


def test_a_fallback_writes_arguments() -> None:
    @tileops.jit(mutates=("Y",))
    def foreign_fallback_in_place(X, Y):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y: T.Tensor((N,), T.float32)
        with T.Extern():
            kernels.add[(T.ceildiv(N, 64),)](X, Y, Y, N, BLOCK=64)

    foreign_fallback_in_place.fallback("cpu", lambda x, y: y.add_(x))
    x, y = torch.randn(10), torch.randn(10)
    expected, version = x + y, y._version
    assert foreign_fallback_in_place(x, y) is None
    assert torch.equal(y, expected)
    assert y._version > version
