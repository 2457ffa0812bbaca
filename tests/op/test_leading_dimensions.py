"""Leading dimensions: ``T.Tensor((..., N), dt)`` takes any number of them, ``T.empty`` gives them back."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import ArgumentError, ArgumentTypeError, ProgramValueError


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@tileops.jit(name="leading_affine")
def affine(A, W, B, rows: int = 4):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    W: T.Tensor((N,), T.float32)
    B: T.Tensor((..., N), T.float32)
    C = T.empty((..., N), T.float32)
    R = A.shape[0]
    with T.Kernel(T.ceildiv(R, rows)) as bx:
        for i, j in T.Parallel(rows, N):
            C[bx * rows + i, j] = A[bx * rows + i, j] * W[j] + B[bx * rows + i, j]
    return C


@tileops.jit(name="leading_sums")
def sums(A, rows: int = 4):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    total = T.empty((...,), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        tile = T.alloc_fragment((rows, N), T.float32)
        out = T.alloc_fragment((rows,), T.float32)
        T.copy(A[bx * rows, 0], tile)
        T.reduce_sum(tile, out, dim=1)
        T.copy(out, total[bx * rows])
    return total


@tileops.jit(name="leading_transposed")
def transposed(A, block: int = 8):
    M, N = T.const("M, N")
    A: T.Tensor((..., M, N), T.float32)
    B = T.empty((..., N, M), T.float32)
    with T.Kernel(A.shape[0]) as b:
        for i, j in T.Parallel(M, N):
            B[b, j, i] = A[b, i, j]
    return B


@tileops.jit(name="leading_elementwise")
def doubled(X, block: int = 64):
    X: T.Tensor((...,), T.float32)
    Y = T.empty((...,), T.float32)
    n = X.shape[0]
    with T.Kernel(T.ceildiv(n, block)) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = X[bx * block + i] * 2
    return Y


@tileops.jit(name="leading_strided")
def strided(A, rows: int = 4):
    N = T.const("N")
    S = T.dynamic("S")
    A: T.StridedTensor((..., N), (S, 1), T.float32)
    C = T.empty((..., N), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            C[bx * rows + i, j] = A[bx * rows + i, j] + 1
    return C


@tileops.jit(name="leading_strided_copy", contiguous="copy")
def strided_copy(A, rows: int = 4):
    N = T.const("N")
    S = T.dynamic("S")
    A: T.StridedTensor((..., N), (S, 1), T.float32)
    C = T.empty((..., N), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            C[bx * rows + i, j] = A[bx * rows + i, j] + 1
    return C


@tileops.jit(name="leading_in_place", differentiable=False)
def increment(A, rows: int = 4):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            A[bx * rows + i, j] += 1


@tileops.jit(name="leading_in_place_strided", differentiable=False)
def increment_strided(A, rows: int = 4):
    N = T.const("N")
    S = T.dynamic("S")
    A: T.StridedTensor((..., N), (S, 1), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            A[bx * rows + i, j] += 1


@tileops.jit(name="leading_in_place_copy", contiguous="copy", differentiable=False)
def increment_copy(A, rows: int = 4):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            A[bx * rows + i, j] += 1


SHAPES = [(16,), (5, 16), (2, 3, 16), (1, 1, 16), (2, 1, 3, 2, 16), (0, 16), (3, 0, 2, 16), (7, 0)]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_shapes(shape: tuple[int, ...]) -> None:
    for _ in range(3):  # the first call resolves, the second looks up, the third is remembered
        a, w, b = torch.randn(shape), torch.randn(shape[-1]), torch.randn(shape)
        if shape[-1] == 0:
            break
        torch.testing.assert_close(affine(a, w, b), a * w + b, rtol=0, atol=1e-6)
        got = sums(a)
        assert got.shape == shape[:-1]
        # A row of 16 terms in float32, in any order.
        bound = 16 * 2.0**-24 * a.double().abs().sum(-1)
        assert ((got.double() - a.double().sum(-1)).abs() <= bound).all()
        assert torch.equal(doubled(a), a * 2)


def test_a_tensor_without_dimensions_is_one_element() -> None:
    x = torch.tensor(3.0)
    assert torch.equal(doubled(x), torch.tensor(6.0))
    assert sums(torch.ones(16)).shape == ()


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0, 3)])
def test_more_dimensions_may_follow(lead: tuple[int, ...]) -> None:
    a = torch.randn(*lead, 3, 5)
    assert torch.equal(transposed(a), a.transpose(-1, -2).contiguous())
    assert transposed(a).is_contiguous()


def test_outputs_have_the_dimensions_of_each_call() -> None:
    # Equal products under different leading dimensions are different calls.
    for shape in itertools.permutations((2, 3, 4)):
        for _ in range(3):
            a = torch.randn(*shape, 16)
            assert sums(a).shape == shape
    assert sums(torch.randn(24, 16)).shape == (24,)


def layouts() -> dict[str, torch.Tensor]:
    """Tensors of last extent 16 whose leading dimensions are one with one stride."""
    base = torch.randn(4, 6, 48)
    return {
        "columns": base[:, :, 16:32],
        "rows_of_one_plane": base[2, ::2, :16],
        "one_row": base[1, 3, :16],
        "odd_strides_of_size_1": torch.as_strided(torch.randn(64), (1, 3, 1, 16), (999, 16, 7, 1)),
        "expanded_rows": torch.randn(1, 16).expand(5, 16),
        "no_elements": torch.as_strided(torch.randn(64), (3, 0, 16), (5, 77, 1)),
    }


@pytest.mark.parametrize("name", layouts())
def test_one_stride(name: str) -> None:
    a = layouts()[name]
    for _ in range(3):
        assert torch.equal(strided(a), a + 1)
        assert torch.equal(strided_copy(a), a + 1)


def unviewable() -> dict[str, torch.Tensor]:
    """Tensors of last extent 16 whose leading dimensions have no one stride."""
    base = torch.randn(4, 6, 16)
    return {
        "transposed": base.transpose(0, 1),
        "every_second_plane": torch.randn(4, 6, 2, 16)[:, :3, 0],
        "expanded": torch.randn(1, 6, 16).expand(4, 6, 16),
        "three": torch.randn(2, 3, 4, 16).permute(1, 0, 2, 3),
    }


@pytest.mark.parametrize("name", unviewable())
def test_no_one_stride(name: str) -> None:
    a = unviewable()[name]
    shape, strides = str(tuple(a.shape)), str(tuple(a.stride()))
    for program in (strided, sums):
        said = []
        for device in ("cpu", "meta"):
            with pytest.raises(ArgumentError) as caught:
                program(
                    a
                    if device == "cpu"
                    else torch.empty_like(a, device="meta").as_strided(a.shape, a.stride())
                )
            said.append(str(caught.value))
        assert said[0] == said[1]
        text = said[0]
        assert program.__name__.rpartition("_")[2] in text
        for part in (
            "argument 'A'",
            shape,
            strides,
            "one dimension with one stride",
            "A.contiguous()",
            'contiguous="copy"',
        ):
            assert part in text
    for _ in range(2):
        assert torch.equal(strided_copy(a), a + 1)


def test_writes_reach_the_tensor() -> None:
    for shape in SHAPES[:-1]:
        a = torch.randn(shape)
        expected, version = a + 1, a._version
        increment(a)
        assert torch.equal(a, expected)
        assert a._version == version + 1
    whole = torch.randn(2, 3, 32)
    expected = whole.clone()
    expected[..., :16] += 1
    increment_strided(whole[..., :16])
    assert torch.equal(whole, expected)


def test_writes_are_in_place_or_refused_or_copied_back() -> None:
    whole = torch.randn(4, 6, 16)
    turned = whole.transpose(0, 1)
    before = whole.clone()
    with pytest.raises(ArgumentError, match="one dimension with one stride"):
        increment(turned)
    with pytest.raises(ArgumentError, match="one dimension with one stride"):
        increment_strided(turned)
    assert torch.equal(whole, before)
    increment_copy(turned)
    assert torch.equal(whole, before + 1)
    with pytest.raises(ArgumentError, match="lie apart"):
        increment_strided(torch.randn(1, 16).expand(5, 16))


def raised(call: Callable[[], object]) -> str:
    with pytest.raises((ArgumentError, ArgumentTypeError)) as caught:
        call()
    return str(caught.value)


MISMATCHES = [
    ((2, 3, 16), (3, 2, 16)),
    ((2, 3, 16), (6, 16)),
    ((2, 3, 16), (2, 16)),
    ((16,), (1, 16)),
]


@pytest.mark.parametrize(("a", "b"), MISMATCHES)
def test_leading_dimensions_that_differ(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    for device in ("cpu", "meta"):
        x, y, w = (torch.ones(s, device=device) for s in (a, b, (16,)))
        text = raised(lambda: affine(x, w, y))  # noqa: B023
        assert text == (
            f"leading_affine: argument 'B': expected the leading dimensions {a[:-1]} of 'A', whose "
            f"shape is {a}, got {b[:-1]} in shape {b}"
        )


def test_other_misfits() -> None:
    a, w = torch.ones(2, 3, 16), torch.ones(16)
    assert "expected 1 dimension or more (..., N), got 0" in raised(lambda: sums(torch.tensor(1.0)))
    assert "expected dimension 2 to be 16 (N" in raised(lambda: affine(a, w, torch.ones(2, 3, 8)))
    text = raised(lambda: affine(a, torch.ones(8), a))
    assert "expected dimension 0 to be 16 (N, where N is 16 by A.shape[-1])" in text
    assert "expected 2 dimensions or more (..., M, N), got 1" in raised(lambda: transposed(w))


@tileops.jit(name="leading_product_as_size")
def per_row(A, scale, rows: int = 4):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    scale: T.Tensor((A.shape[0],), T.float32)
    C = T.empty((..., N), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            C[bx * rows + i, j] = A[bx * rows + i, j] * scale[bx * rows + i]
    return C


def test_the_product_is_a_size_like_others() -> None:
    a, scale = torch.randn(2, 3, 16), torch.randn(6)
    assert torch.equal(per_row(a, scale), a * scale.reshape(2, 3, 1))
    text = raised(lambda: per_row(a, torch.randn(5)))
    assert "to be 6 (leading, where leading is 6 by the leading dimensions of A), got 5" in text


@tileops.jit(name="leading_optional")
def maybe(A, B=None, rows: int = 4):
    N = T.const("N")
    A: T.Tensor((..., N), T.float32)
    B: T.Tensor((..., N), T.float32)
    C = T.empty((..., N), T.float32)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            value = A[bx * rows + i, j]
            C[bx * rows + i, j] = value if B is None else value + B[bx * rows + i, j]
    return C


def test_optional_tensors() -> None:
    a, b = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    assert torch.equal(maybe(a), a)
    assert torch.equal(maybe(a, b), a + b)
    assert "leading dimensions (2, 3) of 'A'" in raised(lambda: maybe(a, b[0]))


# -- torch's machinery -----------------------------------------------------------------------------
def test_opcheck() -> None:
    for shape in ((16,), (2, 3, 16), (0, 16)):
        torch.library.opcheck(affine.op, (torch.randn(shape), torch.randn(16), torch.randn(shape)))
        torch.library.opcheck(strided.op, (torch.randn(*shape[:-1], 32)[..., :16],))
        torch.library.opcheck(increment.op, (torch.randn(shape),))


def test_compiled_with_changing_sizes() -> None:
    seen = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        seen.append(graph)
        return graph.forward

    def model(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return affine(a * 2, w, a) + sums(a).unsqueeze(-1)

    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for shape in ((2, 3, 16), (5, 4, 16), (7, 2, 16)):
        a, w = torch.randn(shape), torch.randn(16)
        torch.testing.assert_close(compiled(a, w), model(a, w))
    assert len(seen) == 1  # one graph for all leading dimensions of one rank
    a = torch.randn(3, 16)
    torch.testing.assert_close(compiled(a, torch.ones(16)), model(a, torch.ones(16)))
    assert len(seen) == 2


def test_compiled_by_inductor() -> None:
    def model(a: torch.Tensor) -> torch.Tensor:
        return strided(a[..., :16]).relu() + 1

    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for shape in ((2, 3, 32), (4, 5, 32)):
        a = torch.randn(shape)
        torch.testing.assert_close(compiled(a), model(a))


class Model(torch.nn.Module):
    def forward(self, a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return affine(a, w, a) + 1


def test_export() -> None:
    a, w = torch.randn(2, 3, 16), torch.randn(16)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    program = torch.export.export(
        Model(), (a, w), dynamic_shapes={"a": {0: batch, 1: length}, "w": None}
    )
    for shape in ((2, 3, 16), (5, 7, 16)):
        x = torch.randn(shape)
        torch.testing.assert_close(program.module()(x, w), Model()(x, w))


def test_vmap_with_a_rule() -> None:
    program = copy.copy(affine)

    def rule(info, in_dims, a, w, b):
        moved = [
            x if d is None else x.movedim(d, 0).contiguous()
            for x, d in zip((a, w, b), in_dims, strict=True)
        ]
        return affine(*moved), 0

    program.register_vmap(rule)
    a, w, b = torch.randn(3, 5, 16), torch.randn(16), torch.randn(3, 5, 16)
    got = torch.vmap(affine, in_dims=(0, None, 0))(a, w, b)
    torch.testing.assert_close(got, a * w + b)


# -- kernels ---------------------------------------------------------------------------------------
@tileops.jit(out_idx=[-1])
def lazy_scale(N, rows=4):
    @T.prim_func
    def main(
        A: T.Tensor((..., N), "float32"),
        W: T.Tensor((N,), "float32"),
        C: T.Tensor((..., N), "float32"),
    ):
        with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
            for i, j in T.Parallel(rows, N):
                C[bx * rows + i, j] = A[bx * rows + i, j] * W[j]

    return main


def test_lazy_kernels() -> None:
    kernel = lazy_scale(16)
    w = torch.randn(16)
    for shape in ((16,), (5, 16), (2, 3, 16)):
        a = torch.randn(shape)
        assert torch.equal(kernel(a, w), a * w)
        compiled = torch.compile(lambda x: kernel(x, w) + 1, fullgraph=True, backend="eager")
        assert torch.equal(compiled(a), a * w + 1)
    assert kernel.params[0].shape == ("...", 16)
    text = raised(lambda: kernel(torch.randn(2, 3, 8), w))
    assert "expected dimension 2 to be 16" in text


def test_kernels_of_eager_programs() -> None:
    a = torch.randn(2, 3, 16)
    kernel = sums.compile(a)
    assert torch.equal(kernel(a), sums(a))
    assert kernel(torch.randn(4, 5, 6, 16)).shape == (4, 5, 6)
    assert [p.shape for p in kernel.params] == [("...", 16), ("...",)]
    assert sums.compile(N=16).name == kernel.name


def test_warm_calls_compile_nothing() -> None:
    assert tileops.warmup([(affine, torch.empty(2, 24), torch.empty(24), torch.empty(2, 24))]) == 2
    a, w = torch.randn(3, 2, 24), torch.randn(24)
    with tileops.option.strict():
        assert torch.equal(affine(a, w, a), a * w + a)


# -- where `...` may not stand ---------------------------------------------------------------------
def test_the_name_of_the_product_is_taken() -> None:
    def program(A, B):
        N = T.const("N")
        leading = T.dynamic("leading")
        A: T.Tensor((..., N), T.float32)
        B: T.Tensor((leading,), T.float32)
        with T.Kernel(1):
            A[0, 0] = B[0]

    with pytest.raises(ProgramValueError, match="the size name `leading`"):
        tileops.jit(program)(torch.ones(2, 3), torch.ones(2))
