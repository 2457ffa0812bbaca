"""Every field of an op's description survives its file: drawn from the dataclasses themselves."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileops import runtime
from tileops.errors import InternalError
from tileops.op.host_program import HostProgram
from tileops.op.spec import STATIC_KINDS, ArgSpec, DTypeRule, OpSpec
from tileops.op.variant import Output, Rule, ScalarRule, SizeRule, TensorRule, Variant

NAMES = st.sampled_from(["A", "b_1", "with", "x" * 40])
INTS = st.integers(-(2**63), 2**63 - 1)
STATICS = {
    "int": INTS,
    "bool": st.booleans(),
    "float": st.floats(allow_nan=False),
    "str": st.text(max_size=4) | st.sampled_from(["inf", "nan", "-inf"]),
    "int[]": st.lists(INTS, max_size=3),
}


def drawn(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type; of a dataclass all fields, those with a default too."""
    if hint in SPECIAL:
        return SPECIAL[hint]
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{f.name: drawn(hints[f.name]) for f in dataclasses.fields(hint)})
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and parts[1:] == (...,):
        return st.lists(drawn(parts[0]), max_size=3).map(tuple)
    if typing.get_origin(hint) is tuple:
        return st.tuples(*(drawn(part) for part in parts))
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return st.one_of(*(drawn(part) for part in parts))
    return PLAIN[hint]


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, 7),
    bool: st.booleans(),
    str: NAMES,
    type(None): st.none(),
    Any: st.none(),  # the static values, which are drawn by their kinds
}
SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    # ``mul`` and ``add`` mean something for an equation alone.
    Rule: st.builds(Rule, st.sampled_from(["bind", "eq"]), PLAIN[int])
    | st.builds(Rule, st.just("solve"), PLAIN[int], st.integers(1, 9), st.integers(-9, 9)),
    HostProgram: st.builds(
        HostProgram,
        st.lists(st.sampled_from(["size:0", "host:sm_count"]), max_size=2).map(tuple),
        st.lists(st.tuples(st.just("const"), INTS) | st.just(("add", 0, 1)), max_size=3).map(tuple),
    ),
}
KINDS = ["tensor", "tensor?", "int", "float", "bool", "device?", *STATIC_KINDS]
KINDS += [f"{kind}?" for kind in STATIC_KINDS]
ARGS = {f.name: drawn(typing.get_type_hints(ArgSpec)[f.name]) for f in dataclasses.fields(ArgSpec)}
ARGS |= {
    "kind": st.sampled_from(KINDS),
    "role": st.sampled_from(["tensor", "scalar", "static", "device"]),
}
SPECIAL[ArgSpec] = st.builds(ArgSpec, **ARGS)


def through_a_file(value: object) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(drawn(OpSpec))
def test_specs(spec: OpSpec) -> None:
    assert OpSpec.from_json(through_a_file(spec.to_json())) == spec


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_variants(data: st.DataObject) -> None:
    spec = data.draw(drawn(OpSpec))
    statics = [
        data.draw(st.none() | STATICS.get(a.kind.removesuffix("?"), st.none()))
        for a in spec.statics()
    ]
    flags = [data.draw(st.booleans()) for _ in spec.optional_tensors()]
    dtypes = [data.draw(st.none() | NAMES) for _ in spec.dtype_rules]
    variant = dataclasses.replace(data.draw(drawn(Variant)), static=(*statics, *flags, *dtypes))
    plain = variant.to_json()
    read = Variant.from_json(through_a_file(plain), spec)
    assert read == variant
    assert list(map(type, read.static)) == list(map(type, variant.static))
    assert repr(read.static) == repr(variant.static)  # -0.0 stays what it is


def test_a_static_that_is_no_number() -> None:
    spec = OpSpec("t", "f", (ArgSpec("x", "float?", "static"),), ())
    variant = Variant((math.nan,), (), (), (), HostProgram((), ()), (), ())
    plain = variant.to_json()
    assert math.isnan(Variant.from_json(through_a_file(plain), spec).static[0])


@pytest.mark.parametrize("kind", [Variant, TensorRule, Output, SizeRule, ScalarRule])
def test_every_field_is_in_the_file(kind: type) -> None:
    inside = {TensorRule: "tensors", Output: "outputs", SizeRule: "sizes", ScalarRule: "scalars"}

    @given(drawn(Variant).filter(lambda v: kind is Variant or getattr(v, inside[kind])))
    def check(variant: Variant) -> None:
        plain = through_a_file(dataclasses.replace(variant, static=()).to_json())
        shown = plain if kind is Variant else plain[inside[kind]][0]
        assert set(shown) == {f.name for f in dataclasses.fields(kind)}

    check()


OP = OpSpec("t", "f", (ArgSpec("A", "tensor", "tensor"),), (0,))
PLAIN_VARIANT = Variant(
    (),
    (TensorRule(0, "A", ("int8",), (Rule("bind", 0),), None, 2, True),),
    (SizeRule("N", "const", 32),),
    (),
    HostProgram(("size:0",), ()),
    (),
    (Output("int8", (0,), 2),),
)


@pytest.mark.parametrize("where", ["tensors", "outputs", "sizes"])
def test_what_is_not_known_is_not_passed_over(where: str) -> None:
    plain = through_a_file(PLAIN_VARIANT.to_json())
    plain[where][0]["lanes"] = 4
    with pytest.raises(InternalError, match="unknown member 'lanes'"):
        Variant.from_json(plain, OP)
    handle = runtime.create_op(_fresh().to_json())
    with pytest.raises(InternalError, match=f"{where}: unknown member 'lanes'"):
        runtime.add_variant(handle, plain)


def _fresh() -> OpSpec:
    _fresh.count = getattr(_fresh, "count", 0) + 1  # type: ignore[attr-defined]
    return dataclasses.replace(OP, name=f"read_{_fresh.count}")  # type: ignore[attr-defined]


def test_the_native_reader_knows_every_member() -> None:
    assert runtime.add_variant(runtime.create_op(_fresh().to_json()), PLAIN_VARIANT.to_json()) == 0
    plain = through_a_file(OP.to_json())
    plain["args"][0]["lanes"] = 4
    with pytest.raises(InternalError, match="args: unknown member 'lanes'"):
        runtime.create_op(plain)
    with pytest.raises(InternalError, match="op: unknown member 'lanes'"):
        runtime.create_op({**OP.to_json(), "lanes": 4})
    with pytest.raises(InternalError, match="ArgSpec: unknown member 'lanes'"):
        OpSpec.from_json(plain)


def test_a_schema_of_another_op_is_refused() -> None:
    plain = {**OP.to_json(), "schema": "f(Tensor A, Tensor B) -> Tensor"}
    with pytest.raises(InternalError, match="make the schema f"):
        OpSpec.from_json(plain)


def test_a_file_from_before_a_field_was_added() -> None:
    plain = through_a_file(PLAIN_VARIANT.to_json())
    del plain["tensors"][0]["pack"]
    del plain["outputs"][0]["pack"]
    read = Variant.from_json(plain, OP)
    assert (read.tensors[0].pack, read.outputs[0].pack) == (1, 1)
    del plain["tensors"][0]["dtypes"]
    with pytest.raises(InternalError, match=r"TensorRule: .*'dtypes'"):
        Variant.from_json(plain, OP)
    plain["tensors"][0]["dtypes"] = [8]
    with pytest.raises(InternalError, match="'dtypes': expected <class 'str'>, got 8"):
        Variant.from_json(plain, OP)


RULED = dataclasses.replace(OP, dtype_rules=(DTypeRule("dt", (0,), (("float16", "float16"),)),))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lanes": 4}, "dtype_rules: unknown member 'lanes'"),
        ({"args": [1]}, "dtype_rules.args"),
        ({"args": []}, "needs dtypes and tensors"),
        ({"stored": []}, "needs dtypes and tensors"),
        ({"stored": [["float16"]]}, "holds pairs"),
        ({"stored": [["float16", 3]]}, "dtype_rules.stored"),
        ({"name": 3}, "dtype_rules.name"),
    ],
)
def test_the_native_reader_checks_dtype_rules(change: dict[str, object], said: str) -> None:
    plain = through_a_file(dataclasses.replace(RULED, name=_fresh().name).to_json())
    plain["dtype_rules"][0].update(change)
    with pytest.raises(InternalError, match=said):
        runtime.create_op(plain)


def test_the_native_reader_checks_variants_of_dtypes() -> None:
    handle = runtime.create_op(dataclasses.replace(RULED, name=_fresh().name).to_json())
    for static, said in (((), "wrong number of static"), ((3,), "static")):
        with pytest.raises(InternalError, match=said):
            runtime.add_variant(handle, {**PLAIN_VARIANT.to_json(), "static": static})
    for number, static in enumerate(("float16", None)):
        plain = {**PLAIN_VARIANT.to_json(), "static": [static]}
        assert runtime.add_variant(handle, plain) == number
    plain = through_a_file(PLAIN_VARIANT.to_json()) | {"static": [None]}
    plain["outputs"][0] |= {"leading": True, "shape": []}
    with pytest.raises(InternalError, match="leading dimensions need a slot"):
        runtime.add_variant(handle, plain)
    plain["tensors"][0] |= {"leading": True, "shape": []}
    with pytest.raises(InternalError, match="leading dimensions need a rule"):
        runtime.add_variant(handle, plain)
