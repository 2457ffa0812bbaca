"""Specialisation without a call: from keywords and shapes to the program that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tileops import frontend
from tileops.dtypes import DType, dtype_of, is_dtype_like
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.program import Program
from tileops.jit.definition import Definition
from tileops.language.parameter_types import PointerType
from tileops.op import call_inputs
from tileops.op.fake import sizes_given
from tileops.op.spec import OpSpec, bound_dtypes, spec_of
from tileops.op.variant import TensorRule, Variant, variant_of
from tileops.optional_torch import torch


@dataclass(frozen=True)
class Specialised:
    """A program for given compile-time values and const sizes."""

    program: Program
    static: Mapping[str, object]
    consts: Mapping[str, int]
    sizes: Mapping[str, int]  # all that the arguments give


Trace = Callable[[Mapping[str, object], Mapping[str, int] | None], Program]


def specialise(
    definition: Definition,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    trace: Trace | None = None,
) -> Specialised:
    """The program that a call with these arguments would run; ``trace`` replaces the definition's.

    Tensors (anything with a ``shape``) may be left out if their const sizes are given by keyword.
    T.ptr stands for a tensor of any shape, the dtype of a run-time scalar for any value.
    ArgumentError for a size that nothing gives, a keyword that names nothing, and as in a call.
    """
    values, extra = definition.bind_arguments(args, kwargs)
    values = {n: v for n, v in values.items() if not _is_placeholder(definition, n, v)}
    given = {k: v for k, v in values.items() if k not in definition.inputs}
    static = definition.static_values(given)
    left_out = {n: None for n in definition.optional if n in values and values[n] is None}
    traced: dict[str, object] = {**static, **left_out}
    trace = trace or definition.trace
    symbolic = trace(traced, None)
    if symbolic.dtype_vars:
        dtypes = _dtypes(definition, symbolic, values, extra)
        traced.update(dtypes)
        extra = {n: v for n, v in extra.items() if n not in dtypes}
        symbolic = replace(trace(traced, None), dtype_vars=())
    copies = definition.options.contiguous == "copy"
    spec = spec_of(symbolic, namespace="tileops", name=definition.name, copies_inputs=copies)
    variant = variant_of(symbolic, spec, ())
    sizes = _sizes_from_tensors(definition, spec, variant, values)
    _add_keywords(definition, variant, extra, sizes)
    consts: dict[str, int] = {}
    for size in variant.sizes:
        if size.kind != "const":
            continue
        if size.name not in sizes:
            raise ArgumentError(
                f"{definition.name}: the value of T.const size '{size.name}' is not given; pass "
                f"{size.name}=... or a tensor that has it"
            )
        consts[size.name] = sizes[size.name]
    program = trace(traced, consts)
    if symbolic.is_tried:
        frontend.check_specialised(symbolic, program, consts)
    return Specialised(program, traced, consts, sizes)


def _is_placeholder(definition: Definition, name: str, value: object) -> bool:
    """True for T.ptr, which stands for any tensor, and for the dtype of a scalar."""
    if name in definition.scalars:
        return isinstance(value, DType) and value == definition.scalars[name]
    return name in definition.inputs and isinstance(value, PointerType)


def _dtypes(
    definition: Definition,
    program: Program,
    values: Mapping[str, object],
    extra: Mapping[str, object],
) -> dict[str, DType | None]:
    """The values of the dtype variables: those of the tensors, else as the keywords say."""
    spec = spec_of(program, namespace="tileops", name=definition.name)
    bound = bound_dtypes(spec, {n: values[n] for n in definition.inputs if n in values})
    found: dict[str, DType | None] = {}
    for rule, value in zip(spec.dtype_rules, bound, strict=True):
        given = extra.get(rule.name)
        if not rule.args:  # all tensors with it are left out, as in a call that gives none
            found[rule.name] = None
            continue
        if given is None and value is None and len(rule.dtypes) > 1:
            params = [spec.args[n].name for n in rule.args]
            raise ArgumentError(
                f"{definition.name}: the dtype '{rule.name}' is not given; pass {rule.name}=... "
                f"({rule.expected}) or a tensor that has it ({', '.join(params)})"
            )
        wanted = None
        if given is not None:
            wanted = str(dtype_of(given)) if is_dtype_like(given) else repr(given)
            if wanted not in rule.dtypes:
                raise ArgumentTypeError(
                    f"{definition.name}: dtype '{rule.name}': expected {rule.expected}, got "
                    f"{wanted}"
                )
        if wanted is not None and value is not None and wanted != value:
            raise ArgumentError(
                f"{definition.name}: dtype '{rule.name}' is given as {wanted} and as {value}"
            )
        found[rule.name] = DType(wanted or value or rule.dtypes[0])
    return found


def _sizes_from_tensors(
    definition: Definition, spec: OpSpec, variant: Variant, values: Mapping[str, object]
) -> dict[str, int]:
    """The sizes that the given tensors have; refuses values that no call takes."""
    for name in definition.inputs:
        value = values.get(name)
        if value is None:
            continue
        if name in definition.scalars:
            where = f"{definition.name}: argument '{name}'"
            call_inputs.scalar(where, definition.scalars[name], value)
        elif isinstance(value, torch.Tensor) or not hasattr(value, "shape"):
            call_inputs.refuse_tensor(definition.name, name, value)
    casts = bool(definition.options.autocast)
    given = {rule.name: _as_tensor(rule, values.get(rule.name), casts) for rule in variant.tensors}
    if all(tensor is None for tensor in given.values()):
        return {}  # an ahead-of-time build need not have torch
    return sizes_given(spec, variant, given)


def _as_tensor(rule: TensorRule, value: Any, casts: bool) -> torch.Tensor | None:  # noqa: ANN401
    """A tensor as a call would get it, without data if need be; None if nothing tells its shape."""
    if value is None:
        return None
    if isinstance(value, torch.Tensor) and not (casts and value.is_floating_point()):
        return value
    # A tensor that autocast casts, or a stand-in that has a shape.
    dtype, shape = getattr(torch, rule.dtypes[0]), [int(extent) for extent in value.shape]
    if not hasattr(value, "stride"):
        return torch.empty(shape, dtype=dtype, device="meta")
    return torch.empty_strided(shape, value.stride(), dtype=dtype, device="meta")


def _add_keywords(
    definition: Definition, variant: Variant, extra: Mapping[str, object], sizes: dict[str, int]
) -> None:
    """Add the sizes that keywords give; refuses those that name nothing or differ from a shape."""
    names = [s.name for s in variant.sizes]
    for name, value in extra.items():
        if name not in names or not isinstance(value, int):
            raise ArgumentError(
                f"{definition.name}: '{name}' is neither a parameter nor a size "
                f"({', '.join(names) or 'there are none'}) with an integer value"
            )
        known = sizes.setdefault(name, value)
        if known != value:
            raise ArgumentError(
                f"{definition.name}: size '{name}' is given as {known} and as {value}"
            )
