"""Bad calls: each raises the class that the rules name, with a text kept in tests/golden/call_errors.

``TILEOPS_UPDATE_GOLDEN=1`` writes the texts anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tileops
from tests.programs import samples
from tests.programs.samples import vector
from tileops.errors import ArgumentError, ArgumentTypeError, NotDifferentiableError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "call_errors"


def half(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.float16)


def matrix(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


Case = tuple[type[Exception], Callable[[], object]]
CASES: dict[str, Case] = {
    "rank": (ArgumentError, lambda: samples.axpy(matrix(2, 2), vector(4), 1.0)),
    "rank_zero": (ArgumentError, lambda: samples.axpy(torch.tensor(1.0), vector(4), 1.0)),
    "dtype": (ArgumentTypeError, lambda: samples.axpy(half(4), vector(4), 1.0)),
    "dtype_of_tunable": (ArgumentTypeError, lambda: samples.scaled(half(4), dtype="float32")),
    "device_mixed": (
        ArgumentError,
        lambda: samples.axpy(vector(4), vector(4).to("meta"), 1.0),
    ),
    "strides": (ArgumentError, lambda: samples.axpy(vector(8)[::2], vector(4), 1.0)),
    "strides_transposed": (
        ArgumentError,
        lambda: samples.sum_difference(matrix(7, 5).t(), matrix(5, 7)),
    ),
    "strides_expanded": (
        ArgumentError,
        lambda: samples.sum_difference(matrix(1, 7).expand(5, 7), matrix(5, 7)),
    ),
    "contradicting_dynamic": (ArgumentError, lambda: samples.axpy(vector(4), vector(5), 1.0)),
    "contradicting_const": (
        ArgumentError,
        lambda: samples.sum_difference(matrix(5, 7), matrix(5, 8)),
    ),
    "equation": (ArgumentError, lambda: samples.row_sums(matrix(7, 3))),
    "missing": (ArgumentTypeError, lambda: samples.axpy(vector(4), vector(4))),
    "missing_compile_time": (ArgumentTypeError, lambda: samples.typed(vector(4))),
    "too_many": (ArgumentTypeError, lambda: samples.axpy(vector(4), vector(4), 1.0, 64, 5)),
    "given_twice": (
        ArgumentTypeError,
        lambda: samples.axpy(vector(4), vector(4), 1.0, X=vector(4)),
    ),
    "unexpected": (ArgumentTypeError, lambda: samples.axpy(vector(4), vector(4), 1.0, beta=2.0)),
    "no_tensor": (ArgumentTypeError, lambda: samples.axpy(vector(4), 3.0, 1.0)),
    "none_for_tensor": (ArgumentTypeError, lambda: samples.axpy(None, vector(4), 1.0)),
    "list_for_tensor": (ArgumentTypeError, lambda: samples.axpy([1.0], vector(4), 1.0)),
    "list_of_tensors": (
        ArgumentTypeError,
        lambda: samples.axpy([vector(4), vector(4)], vector(4), 1.0),
    ),
    "list_of_tensors_to_a_kernel": (
        ArgumentTypeError,
        lambda: samples.lazy_add(4)([vector(4)], vector(4)),
    ),
    "list_of_tensors_to_a_kernel_by_name": (
        ArgumentTypeError,
        lambda: samples.lazy_add(4)(vector(4), B=[vector(4)]),
    ),
    "sparse_to_a_kernel_by_name": (
        ArgumentError,
        lambda: samples.lazy_add(4)(B=vector(4).to_sparse(), A=vector(4)),
    ),
    "dtype_beside_a_negated_view": (
        ArgumentTypeError,
        lambda: samples.axpy(torch._neg_view(vector(4)), half(4), 1.0),
    ),
    "none_to_the_op": (
        ArgumentTypeError,
        lambda: torch.ops.tileops.sample_axpy(vector(4), None, 1.0),
    ),
    "sparse": (ArgumentError, lambda: samples.axpy(vector(4), vector(4).to_sparse(), 1.0)),
    "sparse_rows": (ArgumentError, lambda: samples.row_sums(matrix(2, 3).to_sparse_csr())),
    "quantized": (
        ArgumentError,
        lambda: samples.axpy(
            vector(4), torch.quantize_per_tensor(vector(4), 0.1, 0, torch.qint8), 1.0
        ),
    ),
    "nested": (
        ArgumentError,
        lambda: samples.axpy(
            torch.nested.nested_tensor([vector(4), vector(2)], layout=torch.jagged), vector(4), 1.0
        ),
    ),
    "complex": (ArgumentTypeError, lambda: samples.axpy(vector(4) * 1j, vector(4), 1.0)),
    "tunable_type": (
        ArgumentTypeError,
        lambda: samples.axpy(vector(4), vector(4), 1.0, block_N="64"),
    ),
    "scalar_range": (ArgumentError, lambda: samples.counted(2**31)),
    "scalar_of_65_bits": (ArgumentError, lambda: samples.counted(2**64)),
    "scalar_type": (ArgumentTypeError, lambda: samples.axpy(vector(4), vector(4), "1.0")),
    "scalar_float_for_int": (ArgumentTypeError, lambda: samples.counted(1.5)),
    "scalar_none": (ArgumentTypeError, lambda: samples.axpy(vector(4), vector(4), None)),
    "negative_extent": (ArgumentError, lambda: samples.counted(-1)),
    "requires_grad": (
        NotDifferentiableError,
        lambda: samples.axpy(vector(4).requires_grad_(), vector(4), 1.0).sum().backward(),
    ),
    "lazy_size": (ArgumentError, lambda: samples.lazy_add(100)(vector(99), vector(99))),
    "lazy_missing": (ArgumentTypeError, lambda: samples.lazy_add()),
    "const_not_given": (ArgumentError, lambda: samples.sum_difference.compile(M=4)),
    "unknown_size": (ArgumentError, lambda: samples.sum_difference.compile(M=4, N=4, Q=4)),
    "unknown_target": (ArgumentError, lambda: tileops.compile(_prim(), target="cuda:sm_70")),
    "unknown_pass_config": (
        ArgumentError,
        lambda: tileops.compile(_prim(), pass_configs={"tl.enable_magic": True}),
    ),
    "not_a_prim_func": (ArgumentTypeError, lambda: tileops.compile(samples.relu)),
    "kernel_of_another_device": (
        ArgumentError,
        lambda: tileops.compile(_prim(), out_idx=[2], target="cuda:sm_90")(vector(8), vector(8)),
    ),
}


def _prim() -> object:
    return samples.lazy_add.func(8)


@pytest.mark.parametrize("name", CASES)
def test_bad_call(name: str) -> None:
    expected, call = CASES[name]
    with pytest.raises(expected) as caught:
        call()
    text = f"{type(caught.value).__name__}: {caught.value}\n".replace(_host(), "<this processor>")
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("TILEOPS_UPDATE_GOLDEN") == "1":
        GOLDEN.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def _host() -> str:
    return str(tileops.target.parse_target("cpu"))


def test_every_golden_text_has_a_case() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ops.tileops.sample_axpy(vector(4), vector(4), "1.0"),
        lambda: torch.ops.tileops.sample_counted(1.5),
        lambda: torch.ops.tileops.sample_axpy([vector(4)], vector(4), 1.0),
        lambda: torch.ops.tileops.sample_axpy(vector(4)),
    ],
)
def test_what_torch_refuses_keeps_torchs_text(call: Callable[[], object]) -> None:
    # The rest of the text differs between versions of torch.
    with pytest.raises(RuntimeError, match=r"^tileops::sample_\w+\(\) "):
        call()


def test_a_value_of_another_type_is_a_type_error() -> None:
    kernel = samples.lazy_add(16)
    for call in (
        lambda: samples.axpy(vector(4), vector(4), "1.0"),
        lambda: samples.axpy(vector(4), vector(4), alpha=None),
        lambda: samples.counted(1.5),
        lambda: kernel(vector(16), "1.0"),
    ):
        with pytest.raises(ArgumentTypeError, match=r"argument .\w+.: expected a (tensor|value)"):
            call()


def test_errors_are_pythons_own_classes_too() -> None:
    with pytest.raises(ValueError, match="dimension"):
        samples.axpy(matrix(2, 2), vector(4), 1.0)
    with pytest.raises(TypeError, match="dtype"):
        samples.axpy(half(4), vector(4), 1.0)
