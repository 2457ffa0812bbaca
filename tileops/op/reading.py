"""Owns reading specs and variants back from the JSON that ``op.json`` holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops.errors import InternalError
from tileops.op.host_program import HostProgram
from tileops.op.spec import FORMAT, ArgSpec, OpSpec, with_defaults
from tileops.op.variant import Output, Rule, SizeRule, TensorRule, Variant

_NOT_FINITE = ("inf", "-inf", "nan")


def spec_from_json(data: Mapping[str, Any]) -> OpSpec:
    """The inverse of ``OpSpec.to_json``; InternalError for another format."""
    if data["format"] != FORMAT:
        raise InternalError(f"op.json: expected format {FORMAT}, got {data['format']!r}")
    args = [ArgSpec(a["name"], a["kind"], a["role"], bool(a.get("mutated"))) for a in data["args"]]
    inputs = [a for a in args if a.role in ("tensor", "scalar")]
    return OpSpec(
        namespace=data["namespace"],
        name=data["name"],
        args=(*with_defaults(inputs), *args[len(inputs) :]),
        returns=tuple(int(text.removeprefix("alloc:")) for text in data["returns"]),
        copies_inputs=data.get("contiguous") == "copy",
    )


def variant_from_json(data: Mapping[str, Any], spec: OpSpec) -> Variant:
    """The inverse of ``Variant.to_json`` after ``runtime.static_json``."""
    kinds = [a.kind.removesuffix("?") for a in spec.statics()]
    kinds += ["bool"] * (len(data["static"]) - len(kinds))  # whether an optional tensor was given
    return Variant(
        static=tuple(_static(v, k) for v, k in zip(data["static"], kinds, strict=True)),
        tensors=tuple(_tensor(t) for t in data["tensors"]),
        sizes=tuple(SizeRule(s["name"], s["kind"], s["bits"]) for s in data["sizes"]),
        scalars=tuple((s["arg"], s["name"], s["dtype"]) for s in data["scalars"]),
        host=HostProgram.from_json(data["host"]),
        align_sizes=tuple(data["align_sizes"]),
        outputs=tuple(Output(o["dtype"], tuple(o["shape"])) for o in data["outputs"]),
    )


def _static(value: object, kind: str) -> object:
    # JSON has no infinities and no NaN: those come as text (runtime.static_json).
    return float(str(value)) if kind == "float" and value in _NOT_FINITE else value


def _tensor(data: Mapping[str, Any]) -> TensorRule:
    strides = data["strides"]
    return TensorRule(
        arg=data["arg"],
        name=data["name"],
        dtypes=tuple(data["dtypes"]),
        shape=tuple(_rule(r) for r in data["shape"]),
        strides=None if strides is None else tuple(_rule(r) for r in strides),
    )


def _rule(data: Mapping[str, Any]) -> Rule:
    ((kind, value),) = data.items()
    return Rule(kind, *value) if kind == "solve" else Rule(kind, value)
