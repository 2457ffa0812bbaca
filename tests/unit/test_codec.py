"""Programs as text: equal after the way through it, and nothing else is taken for one."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.kit.traced import program_of
from tests.programs import printed as programs
from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.ir.codec import decode_program, encode_program
from tileops.ir.expr import Const
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.ir.stmt import Assume

HEADS = {"B": 2, "H": 4, "S": 200, "D": 64}


@pytest.mark.parametrize("causal", [False, True])
def test_a_program_comes_back_equal(causal: bool) -> None:
    for consts in (None, HEADS):
        program = program_of(programs.attention, consts, causal=causal)
        found = decode_program(encode_program(program))
        assert found == program
        assert print_program(found) == print_program(program)
        assert found.launches[0].body[0].loc == program.launches[0].body[0].loc


def test_the_text_is_the_same_for_the_same_program() -> None:
    first, second = (program_of(programs.softmax) for _ in range(2))
    assert encode_program(first) == encode_program(second)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, 1.0, 2**-1074])
def test_floats_keep_their_bits(value: float) -> None:
    found = back(Const(DType("float64"), value))
    assert isinstance(found.value, float)
    assert repr(found.value) == repr(value)


def back(expr: Const) -> Const:
    program = program_of(programs.add)
    launch = replace(program.launches[0], body=(Assume(expr),))
    found = decode_program(encode_program(replace(program, launches=(launch,))))
    return found.launches[0].body[0].cond


def test_integers_stay_integers_and_bools_bools() -> None:
    assert type(back(Const(DType("int32"), 1)).value) is int
    assert type(back(Const(DType("bool"), True)).value) is bool
    assert type(back(Const(DType("int32"), 1)).dtype) is DType


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"format": 2, "nodes": [], "root": null}',
        '{"format": 1, "nodes": [], "root": {"node": 0}}',
        '{"format": 1, "nodes": [["Popen", {"args": "ls"}]], "root": {"node": 0}}',
        '{"format": 1, "nodes": [["Const", {"value": 1}]], "root": {"node": 0}}',
        '{"format": 1, "nodes": [["Const", {"dtype": "int32", "value": 1}]], "root": {"node": 0}}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InternalError, match="program text"):
        decode_program(text)


def test_a_text_cut_short_is_refused() -> None:
    text = encode_program(program_of(programs.add))
    with pytest.raises(InternalError):
        decode_program(text[:-2])
    content = json.loads(text)
    content["root"] = 5
    with pytest.raises(InternalError, match="holds a int"):
        decode_program(json.dumps(content))


def test_what_is_no_ir_has_no_text() -> None:
    program = program_of(programs.add)
    broken: Program = replace(program, name=object())  # type: ignore[arg-type]
    with pytest.raises(InternalError, match="no form for object"):
        encode_program(broken)
