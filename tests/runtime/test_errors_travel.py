"""An error raised in C++ arrives as its own Python class wherever the op is called from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime import cpu_ops
from tileops import runtime
from tileops.errors import ArgumentError, ArgumentTypeError, RedefinedOpError, TileopsError

Build = Callable[..., Path]


@pytest.fixture
def op(build_kernel: Build) -> cpu_ops.CpuOp:
    made = cpu_ops.add_op(build_kernel, stem="travel")
    made.call(torch.ones(2), torch.ones(2))
    return made


def test_eager_through_every_handle_of_the_op(op: cpu_ops.CpuOp) -> None:
    packet = getattr(torch.ops.tileops, op.name)
    for handle in (packet, packet.default, packet.default._op):
        with pytest.raises(ArgumentTypeError) as caught:
            handle(torch.ones(2, dtype=torch.int32), torch.ones(2))
        assert type(caught.value) is ArgumentTypeError
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, TileopsError)
        assert caught.value.__cause__ is None


def test_the_classes_catch_as_their_bases(op: cpu_ops.CpuOp) -> None:
    with pytest.raises(ValueError, match="expected dimension 0 to be 2"):
        op.call(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError, match="expected dimension 0 to be 2"):
        op.call(torch.ones(2), torch.ones(3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_inside_a_compiled_graph(op: cpu_ops.CpuOp, backend: str) -> None:
    torch.library.register_fake(f"tileops::{op.name}", lambda a, b: torch.empty_like(a))

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return op.call(a * 2, b) + 1

    compiled = torch.compile(f, fullgraph=True, backend=backend)
    a, b = torch.randn(8), torch.randn(8)
    assert torch.equal(compiled(a, b), a * 2 + b + 1)
    # The graph is unchanged, the op behind it is not: its error comes out of the compiled code.
    runtime.retire_op(op.handle, "gone")
    with pytest.raises(RedefinedOpError, match="gone") as caught:
        compiled(a, b)
    assert type(caught.value) is RedefinedOpError


def test_inside_the_backward_pass_on_autograds_thread(op: cpu_ops.CpuOp) -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return op.call(grad.contiguous(), grad[:1])

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ArgumentError, match="expected dimension 0 to be 2"):
        Failing.apply(x).sum().backward()


def test_on_another_thread_and_with_a_resolver_in_python(op: cpu_ops.CpuOp) -> None:
    runtime.unload(op.handle)

    def refuse(handle: int, request: dict[str, Any]) -> None:
        raise KeyError(request["kind"])

    runtime.set_resolver(op.handle, refuse)
    caught: list[BaseException] = []

    def call() -> None:
        try:
            op.call(torch.ones(2), torch.ones(2))
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [type(error) for error in caught] == [KeyError]


def test_an_interrupt_in_the_resolver_is_an_interrupt(op: cpu_ops.CpuOp) -> None:
    runtime.unload(op.handle)

    def interrupt(handle: int, request: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    runtime.set_resolver(op.handle, interrupt)
    with pytest.raises(KeyboardInterrupt):
        op.call(torch.ones(2), torch.ones(2))


def test_an_allocation_that_torch_refuses(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel, stem="huge")
    make = op.make_variant
    op.make_variant = lambda request: make(request) | {"host": None, "outputs": []}
    entry = op.make_entry
    op.make_entry = lambda request: entry(request) | {
        "host": {"inputs": ["size:0"], "code": [["const", 2**60]]},
        "outputs": [{"dtype": "float32", "shape": [1]}], "launches": [],
    }  # fmt: skip
    with pytest.raises(
        torch.OutOfMemoryError,
        match=r"could not allocate an output of 1152921504606846976 elements",
    ):
        op.call(torch.ones(2), torch.ones(2))
