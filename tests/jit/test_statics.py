"""Compile-time arguments: their schema types, their conversion, and keys that keep them apart."""

from __future__ import annotations

import pytest
import torch

from tests.programs import samples
from tests.programs.samples import relu
from tileops.dtypes import DType
from tileops.errors import ArgumentTypeError
from tileops.jit.statics import EMPTY, NotCarriedError, freeze, kind_of_value, static_param


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "int"),
        (True, "bool"),
        (1.0, "float"),
        ("text", "str"),
        (DType("float16"), "str"),
        (torch.bfloat16, "str"),
        ((1, 2), "int[]"),
        ([], "int[]"),
        ((1, "a"), None),
        ({"a": 1}, None),
        (relu, None),
        (None, None),
    ],
)
def test_kind_of_a_value(value: object, kind: str | None) -> None:
    assert kind_of_value(value) == kind


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (int, "int"),
        ("int", "int"),
        (int | None, "int"),
        ("Optional[float]", "float"),
        (bool, "bool"),
        (list[int], "int[]"),
        (tuple[int, ...], "int[]"),
        ("T.dtype", "str"),
        (dict, None),
        (EMPTY, None),
    ],
)
def test_kind_of_an_annotation(annotation: object, kind: str | None) -> None:
    assert static_param("p", EMPTY, annotation).kind == kind


def test_a_default_that_its_annotation_does_not_describe_is_bound() -> None:
    assert static_param("p", relu, int).kind is None


@pytest.mark.parametrize(
    ("default", "value", "carried", "seen"),
    [
        (128, 64, 64, 64),
        (1.0, 3, 3.0, 3.0),
        (True, False, False, False),
        ("sum", "max", "max", "max"),
        (DType("float32"), torch.float16, "float16", DType("float16")),
        ((1, 2), [3, 4], [3, 4], (3, 4)),
        ([1, 2], (3, 4), [3, 4], [3, 4]),
    ],
)
def test_conversion(default: object, value: object, carried: object, seen: object) -> None:
    param = static_param("p", default, EMPTY)
    encoded = param.encode(value)
    assert encoded == carried
    assert type(encoded) is type(carried)
    assert param.decode(encoded) == seen
    assert type(param.decode(encoded)) is type(seen)
    assert param.decode(None) == default


@pytest.mark.parametrize(
    ("default", "value"),
    [(128, 64.0), (128, True), (1.0, True), ("a", 1), (128, None), (None, relu)],
)
def test_what_the_type_cannot_carry(default: object, value: object) -> None:
    with pytest.raises(NotCarriedError):
        static_param("p", default, EMPTY).encode(value)


def test_an_annotation_makes_it_an_error() -> None:
    with pytest.raises(ArgumentTypeError, match="'p': expected int, got str"):
        static_param("p", 128, int).encode("64")


@pytest.mark.parametrize(
    ("default", "value", "got"),
    [
        (2.0, 10**400, "an integer of 1329 bits"),
        (2.0, torch.ones(2), "a tensor of torch.float32"),
        (2, torch.tensor(2.5), "a tensor of torch.float32"),
        (2, torch.ones(2, dtype=torch.int64), "a tensor of torch.int64"),
        (2, 2**63, "9223372036854775808"),
    ],
)
def test_numbers_that_a_schema_lacks(default: float, value: object, got: str) -> None:
    param = static_param("n", default, type(default))
    expected = f"argument 'n': expected {param.kind}, got {got}"
    with pytest.raises(ArgumentTypeError, match=f"^{expected}$"):
        param.encode(value)


def test_bind_checks_what_a_call_checks() -> None:
    for change, got in (({"factor": "x"}, "str"), ({"block_N": 1.5}, "float")):
        with pytest.raises(ArgumentTypeError, match=f"sample_scaled: bind: .*got {got}"):
            samples.scaled.bind(**change)


def test_frozen_keys() -> None:
    keys = [freeze(v) for v in (1, True, 1.0, -0.0, 0.0, 0, False, "1", (1,), [1], {1}, {"a": 1})]
    assert len(set(keys)) == len(keys)
    assert freeze({"a": [1, {"b": 2}], "c": {3}}) == freeze({"c": {3}, "a": [1, {"b": 2}]})
    assert freeze(float("nan")) == freeze(float("nan"))
    with pytest.raises(ArgumentTypeError, match="hashable"):
        freeze(bytearray())
