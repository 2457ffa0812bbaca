"""What calls through ``torch.ops`` say where torch's own words name nothing."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, ArgumentTypeError, CompileMissError


def test_none_for_a_tensor() -> None:
    x = vector(4)
    for args in ((None, None, 1.0), (None, x, 1.0), (x, None, 1.0)):
        name = "X" if args[0] is None else "Y"
        for op in (torch.ops.tileops.sample_axpy, torch.ops.tileops.sample_axpy.default):
            with pytest.raises(ArgumentTypeError, match=rf"sample_axpy: argument '{name}': .*None"):
                op(*args)


def test_none_for_a_tensor_where_there_are_no_data() -> None:
    sizes = torch.empty(4, device="meta")
    for args in ((None, sizes), (sizes, None)):
        name = "X" if args[0] is None else "Y"
        with pytest.raises(ArgumentTypeError, match=rf"sample_axpy: argument '{name}': .*None"):
            torch.ops.tileops.sample_axpy(*args, 1.0)
    torch._dynamo.reset()
    region = torch.compile(lambda x: torch.ops.tileops.sample_axpy(x, None, 1.0), backend="eager")
    with pytest.raises(Exception, match="sample_axpy: argument 'Y': expected a tensor, got None"):
        region(vector(4))


def test_a_dtype_for_text() -> None:
    x = vector(4)
    with pytest.raises(ArgumentTypeError, match=r"sample_scaled: argument 'dtype': .*'float32'"):
        torch.ops.tileops.sample_scaled(x, dtype=x.dtype)


def test_the_full_name_of_an_op_in_another_namespace() -> None:
    @tileops.jit(name="acme_words::scale")
    def scale(X):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                Y[i] = X[i] * 2
        return Y

    for call in (scale, torch.ops.acme_words.scale):
        with tileops.option.strict(), pytest.raises(CompileMissError, match=r"acme_words::scale "):
            call(vector(7))
        with pytest.raises((ArgumentError, ArgumentTypeError), match=r"^acme_words::scale: "):
            call(vector(7).double())
        with pytest.raises(ArgumentTypeError, match=r"^acme_words::scale: "):
            call(torch.empty(7, dtype=torch.float64, device="meta"))
    with pytest.raises(ArgumentTypeError, match=r"^acme_words::scale: missing"):
        scale()


def test_a_copy_that_torch_compile_removed() -> None:
    def region(x: torch.Tensor) -> torch.Tensor:
        z = x * 2
        y = z.clone()
        samples.add_into(z, y)
        return y

    def with_a_copy_that_stays(x: torch.Tensor) -> torch.Tensor:
        z = x * 2
        y = torch.stack((z,))[0]
        samples.add_into(z, y)
        return y

    x = vector(100)
    torch._dynamo.reset()
    with pytest.raises(ArgumentError, match=r"argument 'Y': .*torch.compile has removed a copy"):
        torch.compile(region, fullgraph=True)(x)
    assert torch.equal(torch.compile(with_a_copy_that_stays, fullgraph=True)(x), region(x))
    with pytest.raises(ArgumentError, match=r"pass a clone\(\)"):
        samples.add_into(x, x)
