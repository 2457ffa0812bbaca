"""The C++ reader holds every field of a description: it writes them again, and nothing is missing."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from tests.native import build
from tileops.op.host_program import HostProgram
from tileops.op.spec import ArgSpec, DTypeRule, OpSpec
from tileops.op.variant import Output, Rule, ScalarRule, SizeRule, TensorRule, Variant

ARGS = (
    ArgSpec("A", "tensor", "tensor", mutated=True),
    ArgSpec("B", "tensor?", "tensor", is_required=True),
    ArgSpec("n", "int", "scalar"),
    ArgSpec("x", "float", "scalar"),
    *(
        ArgSpec(f"s{n}", f"{kind}?", "static", standard=standard)
        for n, (kind, standard) in enumerate(
            (("int", 7), ("float", "inf"), ("str", "a"), ("bool", True))
        )
    ),
    ArgSpec("list", "int[]", "static"),
)
RULES = (DTypeRule("dt", (0, 1), (("float16", "float16"), ("int8", "int4"))),)
OP = OpSpec("acme", "f", ARGS, (1, 0), copies_inputs=True, dtype_rules=RULES)
TENSORS = (
    TensorRule(0, "A", ("float16",), (Rule("bind", 0), Rule("eq", 4)), None, leading=True),
    TensorRule(
        1, "B", ("int8", "uint8"), (Rule("solve", 1, 2, -3), Rule("bind", 1)),
        (Rule("bind", 0), Rule("eq", 0)), 2, raw=True,
    ),
)  # fmt: skip
VARIANT = Variant(
    (7, -0.5, "relu", True, [1, -2], True, "int4"),
    TENSORS,
    (SizeRule("M", "dynamic", 64), SizeRule("N", "const", 32)),
    (ScalarRule(2, "n", "int64"), ScalarRule(3, "x", "bfloat16")),
    HostProgram(("size:0", "size:1", "scalar:0", "host:sm_count"), (("const", 5), ("add", 4, 0))),
    (0,),
    (Output("float16", (0, 5), leading=True), Output("int8", (1, 4), 2)),
)
STATICS: list[tuple[Any, ...]] = [
    VARIANT.static,
    (None, None, None, None, [], False, None),
    (-(2**63), math.inf, "", False, [2**63 - 1], False, "float16"),
    (0, math.nan, 'Ünïcode\n\x00"', None, [0], True, "int4"),
    (0, -math.inf, "inf", None, [0], True, "int4"),
    (1, 1e300, "x", None, [0], True, "int4"),
    (1, -0.0, "x", None, [0], True, "int4"),
    (1, 0.1, "x", None, [0], True, "int4"),
]


def described(op: OpSpec, variant: Variant) -> dict[str, Any]:
    content = variant.to_json()
    return json.loads(json.dumps({"op": op.to_json(), "variant": content}, allow_nan=False))  # type: ignore[no-any-return]


def held(line: dict[str, Any]) -> dict[str, Any]:
    """What the reader must have of a description."""
    expected: dict[str, Any] = json.loads(json.dumps(line))
    for arg in expected["op"]["args"]:
        del arg["is_required"]  # stands in the schema, which torch reads
    host = line["variant"]["host"]  # its evaluation is compared by tests/op/test_host_program.py
    slots = len(host["inputs"]) + len(host["code"])
    expected["variant"]["host"] = {"inputs": len(host["inputs"]), "slots": slots}
    return expected


def reread(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    build.build("reread")
    done = build.run("reread", text="".join(json.dumps(line) + "\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_field_is_held() -> None:
    lines = [described(OP, dataclasses.replace(VARIANT, static=static)) for static in STATICS]
    plain = Variant((), (), (), (), HostProgram((), ()), (), ())
    lines.append(described(OpSpec("t", "g", (ArgSpec("device", "device?", "device"),), ()), plain))
    for line, found in zip(lines, reread(*lines), strict=True):
        assert found == held(line)
        assert json.dumps(found["variant"]["static"]) == json.dumps(line["variant"]["static"])


def test_a_wrong_value_would_be_seen() -> None:
    line = described(OP, VARIANT)
    (found,) = reread(line)
    for change in ({"pack": 4}, {"raw": False}, {"leading": True}, {"strides": None}):
        other = json.loads(json.dumps(line))
        other["variant"]["tensors"][1] |= change
        assert found != held(other)


@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        (OpSpec, [OP]),
        (ArgSpec, ARGS),
        (DTypeRule, RULES),
        (Variant, [VARIANT]),
        (TensorRule, TENSORS),
        (Output, VARIANT.outputs),
        (SizeRule, VARIANT.sizes),
        (ScalarRule, VARIANT.scalars),
        (HostProgram, [VARIANT.host]),
        (Rule, [*TENSORS[1].shape, *(TENSORS[1].strides or ())]),
    ],
)
def test_the_examples_use_every_field(kind: type, examples: list[Any]) -> None:
    """A field that is new must be given a value here that is not its default."""
    for field in dataclasses.fields(kind):
        values = [getattr(example, field.name) for example in examples]
        assert any(value != field.default and value not in ((), None) for value in values), field
