"""What users pass to ops: every layout, empty tensors, any alignment, threads, scalars of each type.

``CASES`` are functions of a device, which the tests of the CPU and of the GPU run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

import tileops
import tileops.language as T
from tests.programs import samples
from tileops.errors import ArgumentError, ArgumentTypeError


@tileops.jit(name="calls_strided")
def strided(X, block: int = 64):
    """Twice ``X`` of any strides."""
    L, M, N = T.dynamic("L, M, N")
    sl, sm, sn = T.dynamic("sl, sm, sn")
    X: T.StridedTensor((L, M, N), (sl, sm, sn), T.float32)
    Y = T.empty((L, M, N), T.float32)
    with T.Kernel(L * M, T.ceildiv(N, block), threads=64) as (bx, by):
        for i in T.Parallel(block):
            Y[bx // M, bx % M, by * block + i] = X[bx // M, bx % M, by * block + i] * 2
    return Y


@tileops.jit(name="calls_copying", contiguous="copy")
def copying(X, block: int = 64):
    """Twice ``X``, which is made contiguous first."""
    L, M, N = T.dynamic("L, M, N")
    X: T.Tensor((L, M, N), T.float32)
    Y = T.empty((L, M, N), T.float32)
    with T.Kernel(L * M, T.ceildiv(N, block), threads=64) as (bx, by):
        for i in T.Parallel(block):
            Y[bx // M, bx % M, by * block + i] = X[bx // M, bx % M, by * block + i] * 2
    return Y


@tileops.jit(name="calls_requiring")
def requiring(X, block: int = 64):
    """Twice ``X``, which must be contiguous; the output has its dimensions turned around."""
    L, M, N = T.dynamic("L, M, N")
    X: T.Tensor((L, M, N), T.float32)
    Y = T.empty((N, M, L), T.float32)
    with T.Kernel(L * M, T.ceildiv(N, block), threads=64) as (bx, by):
        for i in T.Parallel(block):
            if by * block + i < N:
                Y[by * block + i, bx % M, bx // M] = X[bx // M, bx % M, by * block + i] * 2
    return Y


@tileops.jit(name="calls_gather")
def gather(X, index, block: int = 64):
    """``X[index]`` for an index of any stride."""
    K, N = T.dynamic("K, N")
    (step,) = (T.dynamic("step"),)
    X: T.Tensor((K,), T.float32)
    index: T.StridedTensor((N,), (step,), T.int64)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = X[index[bx * block + i]]
    return Y


@tileops.jit(name="calls_rows")
def rows(X, block: int = 64):
    """``X + 1`` for a matrix."""
    M, N = T.dynamic("M, N")
    X: T.Tensor((M, N), T.float32)
    Y = T.empty((M, N), T.float32)
    with T.Kernel(M, T.ceildiv(N, block), threads=64) as (bx, by):
        for i in T.Parallel(block):
            Y[bx, by * block + i] = X[bx, by * block + i] + 1
    return Y


@tileops.jit(name="calls_half")
def half(X, Y, block: int = 128):
    """The sum of two float16 vectors."""
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float16)
    Y: T.Tensor((N,), T.float16)
    Z = T.empty((N,), T.float16)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            Z[bx * block + i] = X[bx * block + i] + Y[bx * block + i]
    return Z


@tileops.jit(name="calls_matmul")
def matmul(A, B, block: int = 32):
    """``A @ B`` in float32."""
    M, N, K = T.dynamic("M, N, K")
    A: T.Tensor((M, K), T.float16)
    B: T.Tensor((K, N), T.float16)
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        left = T.alloc_shared((block, block), T.float16)
        right = T.alloc_shared((block, block), T.float16)
        acc = T.alloc_fragment((block, block), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block), num_stages=2):
            T.copy(A[by * block, k * block], left)
            T.copy(B[k * block, bx * block], right)
            T.gemm(left, right, acc)
        T.copy(acc, C[by * block, bx * block])
    return C


def _cube(device: str) -> torch.Tensor:
    return torch.randn(4, 6, 8, device=device)


LAYOUTS: dict[str, Callable[[str], torch.Tensor]] = {
    "contiguous": _cube,
    "the first four columns": lambda d: _cube(d)[:, :, :4],
    "transposed": lambda d: _cube(d)[0].t().unsqueeze(0),
    "a dimension moved to the end": lambda d: _cube(d).movedim(1, -1),
    "expanded": lambda d: _cube(d)[:, :1].expand(4, 6, 8),
    "a size-1 dimension of stride 999": lambda d: torch.as_strided(
        _cube(d), (1, 6, 8), (999, 8, 1)
    ),
    "the first two dimensions swapped": lambda d: torch.randn(4, 2, 8, device=d).transpose(0, 1),
    "every other column": lambda d: _cube(d)[..., ::2],
    "at an offset": lambda d: _cube(d).reshape(-1)[3:51].view(2, 4, 6),
}


def fakes_equal_what_calls_give(device: str) -> None:
    """Shape, stride, dtype, device and offset of the fake's outputs, or its refusal; and opcheck."""
    for name, make in LAYOUTS.items():
        x = make(device)
        for program in (strided, copying, requiring):
            real, fake = _facts_of(program.op, x), _facts_of_fake(program.op, x)
            assert real == fake, (name, program.op, real, fake)
            if isinstance(real, tuple):
                torch.library.opcheck(program.op, (x,))
    assert isinstance(_facts_of(requiring.op, LAYOUTS["transposed"](device)), str)


def _facts_of(op: Any, x: torch.Tensor) -> object:
    try:
        out = op(x)
    except RuntimeError as error:
        return type(error).__name__
    return tuple(out.shape), out.stride(), out.dtype, out.device.type, out.storage_offset()


def _facts_of_fake(op: Any, x: torch.Tensor) -> object:
    with FakeTensorMode() as mode:
        return _facts_of(op, mode.from_tensor(x))


def layouts_give_what_contiguous_inputs_give(device: str) -> None:
    for name, make in LAYOUTS.items():
        x = make(device)
        expected = strided(x.contiguous())
        assert torch.equal(expected, x * 2)
        for program in (strided, copying):
            assert torch.equal(program(x), expected), (name, program.op)
    swapped = LAYOUTS["the first two dimensions swapped"](device)
    assert (swapped.shape, swapped.stride()) == ((2, 4, 8), (8, 16, 1))
    count = 100
    index = torch.arange(2 * count, device=device)[::2]
    x = torch.randn(2 * count, device=device)
    assert torch.equal(gather(x, index), gather(x, index.contiguous()))
    assert torch.equal(gather(x, index), x[::2])


EMPTY: list[tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = [
    (lambda x: samples.axpy(x, x, 1.0), (0,)),
    (rows, (0, 64)),
    (rows, (128, 0)),
    (strided, (2, 0, 3)),
]


def empty_tensors_launch_nothing(device: str) -> None:
    compiled = {
        n: torch.compile(call, fullgraph=True, backend="aot_eager")
        for n, (call, _) in enumerate(EMPTY)
    }
    for number, (call, shape) in enumerate(EMPTY):
        x = torch.empty(shape, device=device)
        before = tileops.stats()["launches"]
        for run in (call, compiled[number]):
            out = run(x)
            assert (out.shape, out.stride()) == (x.shape, torch.empty(shape).stride()), shape
            assert out.device == x.device
        assert tileops.stats()["launches"] == before, shape


def empty_tensors_have_empty_gradients(device: str) -> None:
    @tileops.jit(name="calls_differentiable")
    def halved(X, block: int = 64):
        M, N = T.dynamic("M, N")
        X: T.Tensor((M, N), T.float32)
        Y = T.empty((M, N), T.float32)
        with T.Kernel(M, T.ceildiv(N, block), threads=64) as (bx, by):
            for i in T.Parallel(block):
                Y[bx, by * block + i] = X[bx, by * block + i] * 0.5
        return Y

    halved.register_autograd(lambda ctx, grad: halved(grad.contiguous()))
    for shape in ((0, 64), (128, 0), (3, 5)):
        for call in (halved, torch.compile(halved, fullgraph=True, backend="aot_eager")):
            x = torch.randn(shape, device=device, requires_grad=True)
            before = tileops.stats()["launches"]
            call(x).sum().backward()
            assert x.grad is not None
            assert torch.equal(x.grad, torch.full(shape, 0.5, device=device))
            launched = tileops.stats()["launches"] - before
            assert launched == (0 if 0 in shape else 2), shape


def an_inner_dimension_of_zero_gives_zeros(device: str) -> None:
    a = torch.empty(50, 0, device=device, dtype=torch.float16)
    b = torch.empty(0, 70, device=device, dtype=torch.float16)
    matmul(a, b)
    for call in (matmul, torch.compile(matmul, fullgraph=True, backend="aot_eager")):
        torch.full((50, 70), 7.0, device=device)  # memory that may come back is not zero
        before = tileops.stats()["launches"]
        out = call(a, b)
        assert torch.equal(out, torch.zeros(50, 70, device=device))
        assert tileops.stats()["launches"] == before + 1


def dynamic_sizes_in_one_graph(device: str) -> None:
    counter = CompileCounter()
    region = torch.compile(
        lambda x, y: samples.axpy(x, y, 0.5) * 2, fullgraph=True, dynamic=True, backend=counter
    )
    for n in (1, 2, 5, 6, 0, 17, 4096):
        x, y = (torch.randn(n, device=device) for _ in range(2))
        # A product and a sum in float32, fused or not: two roundings of numbers below 8.
        torch.testing.assert_close(region(x, y), (0.5 * x + y) * 2, rtol=0, atol=2.0**-20)
    assert counter.frame_count <= 3


def every_alignment_after_a_warm_up(device: str) -> None:
    tileops.warmup([half], target=None if device == "cpu" else device)
    base, other = (torch.randn(4096 + 64, device=device).half() for _ in range(2))
    views = {
        "aligned": lambda t: t[:4096],
        "two bytes off": lambda t: t[1:4097],
        "sixteen bytes off": lambda t: t[8:4104],
        "a view with an offset": lambda t: t[3:4099].view(64, 64).view(-1),
        "an odd length": lambda t: t[:4001],
    }
    assert views["two bytes off"](base).data_ptr() % 16 == 2
    before = tileops.stats()
    with tileops.option.strict():
        for first in views.values():
            for second in views.values():
                x, y = first(base), second(other)
                n = min(x.numel(), y.numel())
                assert torch.equal(half(x[:n], y[:n]), x[:n] + y[:n])
    after = tileops.stats()
    assert (after["compiles"], after["loads"]) == (before["compiles"], before["loads"])


def a_thread_calls_what_another_warmed(device: str) -> None:
    x = torch.randn(333, device=device)
    expected = samples.axpy(x, x, 1.0)
    found: list[object] = []

    def work() -> None:
        try:
            found.append(torch.equal(samples.axpy(x, x, 1.0), expected))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]


def sixteen_threads_make_the_first_call(device: str) -> None:
    @tileops.jit(name="calls_first_by_sixteen")
    def first(X, block: int = 64):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * 16
        return Y

    x = torch.randn(160, device=device)
    gate = threading.Barrier(16)
    found: list[object] = []

    def work() -> None:
        gate.wait()
        try:
            found.append(torch.equal(first(x), x * 16))
        except Exception as error:
            found.append(error)

    before = tileops.stats()
    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = tileops.stats()
    assert found == [True] * 16
    assert after["compiles"] - before["compiles"] == 1
    assert after["loads"] - before["loads"] == 1


FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = {"int32": (2**31 - 1, -1, -(2**31)), "int64": (2**31 - 1, 2**31, -1, 2**53 + 1)}


@tileops.jit(out_idx=[-1])
def storing(N, name, block=32):
    """A kernel that fills a vector with its argument, a scalar of the dtype ``name``."""
    dtype = getattr(T, name)

    @T.prim_func
    def main(X: T.Tensor((N,), dtype), value: dtype, Y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = value

    return main


@tileops.jit(name="calls_optional")
def shifted(X, value: T.int32, extra=None, block: int = 32):
    """``X + value``, plus ``extra`` where it is given."""
    N = T.dynamic("N")
    X: T.Tensor((N,), T.int32)
    extra: T.Tensor((N,), T.int32)
    Y = T.empty((N,), T.int32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            if extra is None:
                Y[bx * block + i] = X[bx * block + i] + value
            else:
                Y[bx * block + i] = X[bx * block + i] + value + extra[bx * block + i]
    return Y


def scalars_are_stored_as_their_type_holds_them(device: str) -> None:
    for name in (*FLOATS, *INTS):
        dtype = getattr(torch, name)
        kernel = storing(40, name)
        x = torch.zeros(40, dtype=dtype, device=device)
        for value in (0.1, 0.125, 42.0) if name in FLOATS else INTS[name]:
            want = torch.full((40,), value, dtype=dtype, device=device)
            for given in (kernel(x, value), kernel.op(x, value)):
                assert given.dtype == dtype
                assert torch.equal(given, want), (name, value)


def optional_tensors_and_wrong_types(device: str) -> None:
    x = torch.arange(40, dtype=torch.int32, device=device)
    for call in (shifted, torch.ops.tileops.calls_optional):
        assert torch.equal(call(x, 2), x + 2)
        assert torch.equal(call(x, 2, None), x + 2)
        assert torch.equal(call(x, -1, x), 2 * x - 1)
        words = r"argument 'value': expected a value of int32, got 2147483648"
        with pytest.raises(ArgumentError, match=words) as caught:
            call(x, 2**31)
        assert isinstance(caught.value, ValueError)
    for bad in ("1", 1.5, None, [1]):
        with pytest.raises(
            ArgumentTypeError, match="argument 'value': expected a value of int32"
        ) as wrong:
            shifted(x, bad)
        assert isinstance(wrong.value, TypeError)
    with pytest.raises(ArgumentTypeError, match="argument 'extra': expected a tensor"):
        shifted(x, 1, 2)


@tileops.jit(name="calls_flagged")
def flagged(X, flag: T.bool, block: int = 32):
    """``X`` or its negative."""
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = T.if_then_else(flag, X[bx * block + i], -X[bx * block + i])
    return Y


def flags_are_run_time_values(device: str) -> None:
    x = torch.randn(50, device=device)
    assert torch.equal(flagged(x, True), x)
    compiles = tileops.stats()["compiles"]
    assert torch.equal(flagged(x, False), -x)
    assert tileops.stats()["compiles"] == compiles


def mixed_devices_are_named(device: str) -> None:
    other = "meta" if device == "cpu" else "cpu"
    x, y = torch.randn(8, device=device), torch.randn(8, device=other)
    here = str(x.device)
    for first, second, one, two in ((x, y, here, other), (y, x, other, here)):
        for call in (samples.axpy, samples.axpy.op):
            with pytest.raises(ArgumentError) as caught:
                call(first, second, 1.0)
            assert isinstance(caught.value, ValueError)
            text = str(caught.value)
            assert text.startswith("sample_axpy: ")
            assert f"'X' on {one} and 'Y' on {two}" in text or (
                "argument 'Y'" in text and one in text and two in text
            ), text


CASES: tuple[Callable[[str], None], ...] = (
    fakes_equal_what_calls_give,
    layouts_give_what_contiguous_inputs_give,
    empty_tensors_launch_nothing,
    empty_tensors_have_empty_gradients,
    an_inner_dimension_of_zero_gives_zeros,
    dynamic_sizes_in_one_graph,
    every_alignment_after_a_warm_up,
    a_thread_calls_what_another_warmed,
    sixteen_threads_make_the_first_call,
    scalars_are_stored_as_their_type_holds_them,
    optional_tensors_and_wrong_types,
    flags_are_run_time_values,
    mixed_devices_are_named,
)
