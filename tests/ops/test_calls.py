"""Layouts, errors, transforms and graphs: operators behave as those of torch.nn.functional do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.ops.cases import CASES, PLAIN, SERVED, TRAINED, Case
from tests.ops.exactness import results
from tests.ops.recorded import checks_of, programs_called
from tileops import ops
from tileops.errors import ArgumentError, ArgumentTypeError, NotDifferentiableError
from tileops.ops.info import random

# Programs of other tests may have taken the names in torch.ops.tileops.
_OPERATORS = getattr(torch.ops, ops.NAMESPACE)

X = torch.randn(4, 6)
W = torch.randn(6)
TARGET = torch.tensor([0, 5, 2, 3])


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("view", ["strided", "expanded", "transposed"])
def test_views(case: Case, view: str) -> None:
    inputs = list(case.inputs(4, 6, torch.float32, "cpu"))
    *leading, rows, columns = inputs[0].shape
    dtype = inputs[0].dtype
    first = {
        "strided": random((*leading, rows, 2 * columns), dtype)[..., ::2],
        "expanded": random((*leading, 1, columns), dtype).expand(*leading, rows, columns),
        "transposed": random((*leading, columns, rows), dtype).mT,
    }[view]
    whole = results(case.call(first.contiguous(), *inputs[1:]))
    for a, b in zip(results(case.call(first, *inputs[1:])), whole, strict=True):
        if case.info.flops:  # torch's product of another layout may sum in another order
            torch.testing.assert_close(a, b)
        else:
            assert torch.equal(a, b)


@pytest.mark.parametrize("case", [c for c in PLAIN if c in TRAINED], ids=str)
def test_a_compiled_training_step(case: Case) -> None:
    torch._dynamo.reset()  # the cases share a line of code, and so a limit of recompilations
    inputs = case.form.leaves(case.inputs(4, 6, torch.float32, "cpu"))

    def total(*given: torch.Tensor) -> torch.Tensor:
        return sum(y.sum() for y in results(case.call(*given)))

    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(total(*inputs), inputs)
    with ops.compile_mode("opaque"):
        found = torch.autograd.grad(compiled(*inputs), inputs)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "case", [c for c in PLAIN if not c.info.name.endswith("cross_entropy")], ids=str
)
def test_vmap(case: Case) -> None:
    batch = torch.stack([case.inputs(4, 6, torch.float32, "cpu")[0] for _ in range(3)], 1)
    others = case.inputs(4, 6, torch.float32, "cpu")[1:]
    mapped = torch.vmap(lambda x: case.call(x, *others), in_dims=1)(batch)
    each = [results(case.call(batch[:, n], *others)) for n in range(3)]
    for n, out in enumerate(results(mapped)):
        assert torch.equal(out, torch.stack([r[n] for r in each]))


def test_vmap_of_a_loss() -> None:
    x, target = torch.randn(3, 4, 6), torch.randint(6, (3, 4))
    each = torch.stack([ops.cross_entropy(a, t) for a, t in zip(x, target, strict=True)])
    assert torch.equal(torch.vmap(ops.cross_entropy)(x, target), each)
    same = torch.vmap(ops.cross_entropy, in_dims=(0, None))(x, TARGET)
    assert torch.equal(same, torch.stack([ops.cross_entropy(a, TARGET) for a in x]))


def test_vmap_over_weights() -> None:
    weights = torch.randn(3, 6)
    mapped = torch.vmap(lambda w: ops.rms_norm(X, (6,), w, 1e-6))(weights)
    assert torch.equal(mapped, torch.stack([ops.rms_norm(X, (6,), w, 1e-6) for w in weights]))


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), (1, 2)], ids=str)
def test_some_gradients(wanted: tuple[int, ...]) -> None:
    def gradients(norm: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        inputs = [x.clone().requires_grad_(n in wanted) for n, x in enumerate((X, W, W + 1))]
        out = norm(inputs[0], (6,), inputs[1], inputs[2])
        return torch.autograd.grad(out.square().sum(), [inputs[n] for n in wanted])

    for a, b in zip(gradients(ops.layer_norm), gradients(F.layer_norm), strict=True):
        torch.testing.assert_close(a, b)


def test_mixed_dtypes() -> None:
    x, w = X.bfloat16().requires_grad_(), W.clone().requires_grad_()
    y = ops.rms_norm(x, (6,), w, 1e-6)
    assert y.dtype == torch.bfloat16
    assert [g.dtype for g in torch.autograd.grad(y.sum(), (x, w))] == [
        torch.bfloat16,
        torch.float32,
    ]


def test_several_normalised_dimensions() -> None:
    x, w = torch.randn(2, 3, 4, 5), torch.randn(4, 5)
    torch.testing.assert_close(ops.layer_norm(x, (4, 5), w, w), F.layer_norm(x, (4, 5), w, w))


@pytest.mark.parametrize("case", SERVED, ids=str)
def test_a_gradient_of_an_operator_of_inference_is_refused(case: Case) -> None:
    inputs = case.inputs(4, 6, torch.float32, "cpu")
    inputs = tuple(x.requires_grad_(x.dtype == torch.float32) for x in inputs)
    outputs = [y for y in results(case.call(*inputs)) if y.is_floating_point()]
    with pytest.raises(NotDifferentiableError, match=case.info.name):
        outputs[0].float().sum().backward()


def test_a_second_derivative_is_refused() -> None:
    x = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(ops.softmax(x, -1).square().sum(), x, create_graph=True)
    with pytest.raises(NotDifferentiableError, match="softmax_backward"):
        torch.autograd.grad(first.sum(), x)


def test_softmax_of_special_rows() -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[1, nan, 2], [-inf, -inf, -inf], [inf, 1, 2], [-inf, 1, 2], [inf, inf, 0]]
    for extra in (0, 20000):
        x = F.pad(torch.tensor(rows, dtype=torch.float64), (0, extra), value=-inf)
        torch.testing.assert_close(ops.softmax(x, 1), torch.softmax(x, 1), equal_nan=True)


def test_cross_entropy_of_special_targets() -> None:
    loss = ops.cross_entropy(X, torch.tensor([0, 6, -1, -100]), reduction="none")
    assert loss.isnan().tolist() == [False, True, True, False]
    assert loss[3] == 0
    assert ops.cross_entropy(X, torch.full((4,), -100)).isnan()
    x = torch.randn(2, 6, 3)
    target = torch.tensor([[0, 1, 2], [3, 4, 5]])
    torch.testing.assert_close(ops.cross_entropy(x, target), F.cross_entropy(x, target))


@pytest.mark.parametrize(
    "weight", [None, torch.rand(6, dtype=torch.float64)], ids=["plain", "weighed"]
)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_cross_entropy_options(weight: Any, reduction: str, softcap: float | None) -> None:
    x = X.double().requires_grad_()
    target = torch.tensor([0, -100, 2, 3])
    options: Any = {"reduction": reduction, "label_smoothing": 0.2}
    loss, log_sum = ops.cross_entropy(
        x, target, weight, softcap=softcap, z_loss=0.1, return_aux=True, **options
    )
    capped = x if softcap is None else softcap * torch.tanh(x / softcap)
    lse = capped.logsumexp(-1)
    rows = F.cross_entropy(capped, target, weight, reduction="none", label_smoothing=0.2)
    rows = rows + 0.1 * lse.square() * (target != -100)
    kept = target != -100
    total = kept.sum() if weight is None else weight[target[kept]].sum()
    expected = {"none": rows, "sum": rows.sum(), "mean": rows.sum() / total}[reduction]
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(log_sum, lse)
    (a,) = torch.autograd.grad((loss.sum() + log_sum.sum()), x)
    (b,) = torch.autograd.grad((expected.sum() + lse.sum()), x)
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ops.rms_norm(X, (5,)), ArgumentError, r"rms_norm: normalized_shape: .* got \(5,\)"),
        (lambda: ops.rms_norm(X, 6), ArgumentTypeError, "rms_norm: normalized_shape: .* got 6"),
        (lambda: ops.rms_norm(X.int(), (6,)), ArgumentTypeError, "rms_norm: input: .* got int32"),
        (lambda: ops.rms_norm(3, (6,)), ArgumentTypeError, "rms_norm: input: expected a tensor, got int"),
        (lambda: ops.rms_norm(X, (6,), W[:3]), ArgumentError, r"rms_norm: weight: .* got \(3,\)"),
        (lambda: ops.rms_norm(X, (6,), rounding="up"), ArgumentError, "rounding: .* got 'up'"),
        (lambda: ops.add_rms_norm(X, X[:2], (6,)), ArgumentError, "add_rms_norm: residual: .* shape"),
        (lambda: ops.silu_mul(X, X.half()), ArgumentTypeError, "silu_mul: up: .* float32, got float16"),
        (lambda: ops.gelu_mul(X, X, "fast"), ArgumentError, "gelu_mul: approximate: .* got 'fast'"),
        (lambda: ops.softmax(X, 2), ArgumentError, "softmax: dim: expected -2 to 1 .* got 2"),
        (lambda: ops.cross_entropy(X, TARGET.int()), ArgumentTypeError, "target: .* int64, got .*int32"),
        (lambda: ops.cross_entropy(X, TARGET[:2]), ArgumentError, r"target: .* \(4,\), got \(2,\)"),
        (lambda: ops.cross_entropy(X, TARGET, reduction="m"), ArgumentError, "reduction: .* got 'm'"),
        (lambda: ops.cross_entropy(X, TARGET, softcap=0.0), ArgumentError, "softcap: .* got 0.0"),
        (lambda: ops.cross_entropy(X, TARGET, label_smoothing=2.0), ArgumentError, "smoothing: .* 2.0"),
        (lambda: ops.cross_entropy(X, TARGET, softcap="2"), ArgumentTypeError, "softcap: .* got str"),
        (lambda: ops.cross_entropy(X, TARGET, label_smoothing="0"), ArgumentTypeError, "smoothing: .* str"),
        (lambda: ops.cross_entropy(X, TARGET, reduce=True), ArgumentError, "reduce: expected None"),
    ],
)  # fmt: skip
def test_what_does_not_fit(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", ["rms_norm", "add_rms_norm", "gelu_mul"])
def test_an_op_refuses_an_unknown_word(name: str) -> None:
    numbers = (1e-6, 0.0) if name != "gelu_mul" else ()
    tensors = (X, W) if name == "rms_norm" else (X, X, W) if name == "add_rms_norm" else (X, X)
    word = "approximate" if name == "gelu_mul" else "rounding"
    with pytest.raises(ArgumentError, match=f"{name}: {word}: expected one of .*, got 'up'"):
        getattr(_OPERATORS, name)(*tensors, *numbers, **{word: "up"})


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_opcheck(case: Case) -> None:
    for call in programs_called(case, torch.float32):
        given = [
            a.detach().requires_grad_(case.info.has_gradients and a.is_floating_point())
            if isinstance(a, torch.Tensor)
            else a
            for a in call.arguments
        ]
        torch.library.opcheck(call.op, given, call.options, test_utils=checks_of(given))
