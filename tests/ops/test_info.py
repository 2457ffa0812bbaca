"""Records of operators without gradients, and of tensors with dtypes of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.ops.cases import Case
from tests.ops.exactness import require_as_exact_as_torch, with_gradients
from tileops.ops import info
from tileops.ops.info import Form

FLOAT8 = torch.float8_e4m3fn
FORM = Form(
    "scaled",
    lambda rows, columns: ((rows, columns), (columns,), (rows,), (rows, columns)),
    dtypes=(FLOAT8, torch.float32, torch.int8),
)


def scaled(x: Any, scale: Any, add: Any, gate: Any) -> tuple[Any, Any]:
    """Values of the dtype of ``gate``, and the place of the largest of each row."""
    wide = torch.promote_types(gate.dtype, torch.float32)
    out = x.to(wide) * scale.to(wide) + add.to(wide)[:, None] + gate.to(wide)
    return out.to(gate.dtype), out.argmax(-1)


def case_of(call: Any, **changes: Any) -> Case:
    """A case of ``call``, with the gradients refused."""
    made = dataclasses.replace(
        info.of("softmax"), name="scaled", call=call, eager=scaled, forms=(FORM,),
        backward_reads=None, **changes,
    )  # fmt: skip
    return Case(made, FORM)


def dtypes(tensors: Sequence[torch.Tensor]) -> list[torch.dtype]:
    return [x.dtype for x in tensors]


def test_tensors_keep_dtypes_of_their_own() -> None:
    own = [FLOAT8, torch.float32, torch.int8]
    inputs = FORM.inputs(3, 5, torch.float16)
    assert dtypes(inputs) == [*own, torch.float16]
    assert dtypes(FORM.to(inputs, torch.float64)) == [*own, torch.float64]
    assert [x.requires_grad for x in FORM.leaves(inputs)] == [False, False, False, True]


def test_random_integers_have_all_bits() -> None:
    x = info.random((10000,), torch.int8)
    assert (int(x.min()), int(x.max())) == (-128, 127)


def test_without_gradients_results_alone_are_compared() -> None:
    case = case_of(scaled)
    assert len(with_gradients(case, case.call, case.inputs(3, 5, torch.float32, "cpu"), 0)) == 2
    require_as_exact_as_torch(case, 7, 33, torch.bfloat16, "cpu")
    with pytest.raises(ValueError, match="scaled has no backward pass"):
        case.info.backward_bytes((), (), ())


def test_a_wrong_place_and_a_wrong_value_are_found() -> None:
    def next_place(*given: Any) -> Any:
        out, place = scaled(*given)
        return out, place + 1

    def larger(*given: Any) -> Any:
        out, place = scaled(*given)
        return out + 1, place

    for n, call in enumerate((larger, next_place)):
        with pytest.raises(AssertionError, match=f"result {n}: error"):
            require_as_exact_as_torch(case_of(call), 7, 33, torch.float32, "cpu")


def test_a_reference_of_its_own() -> None:
    case = case_of(scaled, reference=lambda *given: given[3] * 2)
    inputs = FORM.to(case.inputs(3, 5, torch.float32, "cpu"), torch.float64)
    assert torch.equal(case.exact(*inputs), inputs[3] * 2)
    assert torch.equal(case_of(scaled).exact(*inputs)[0], scaled(*inputs)[0])
