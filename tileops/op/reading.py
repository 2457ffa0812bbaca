"""Owns reading specs and variants back from the JSON that ``op.json`` holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops.errors import InternalError
from tileops.op.plain_json import fields_from_json
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant

_NOT_FINITE = ("inf", "-inf", "nan")


def spec_from_json(data: Mapping[str, Any]) -> OpSpec:
    """The inverse of ``OpSpec.to_json``; InternalError for another format."""
    return OpSpec.from_json(data)


def variant_from_json(data: Mapping[str, Any], spec: OpSpec) -> Variant:
    """The inverse of ``Variant.to_json`` after ``runtime.static_json``."""
    kinds = [a.kind.removesuffix("?") for a in spec.statics()]
    kinds += ["bool"] * len(spec.optional_tensors())  # whether an optional tensor was given
    kinds += ["str"] * len(spec.dtype_rules)
    values = data["static"]
    if len(values) != len(kinds):
        raise InternalError(f"{spec.name}: expected {len(kinds)} static values, got {values!r:.80}")
    static = [_static(v, k) for v, k in zip(values, kinds, strict=True)]
    return fields_from_json(Variant, {**data, "static": static})


def _static(value: object, kind: str) -> object:
    # JSON has no infinities and no NaN: those come as text (runtime.static_json).
    return float(str(value)) if kind == "float" and value in _NOT_FINITE else value
