"""Owns specialisation without a call: from keywords and shapes to the program they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tileops import frontend
from tileops.dtypes import DType, dtype_of, is_dtype_like
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.program import Program, TensorParam
from tileops.jit.definition import Definition
from tileops.op import arguments
from tileops.op.bound_dtypes import bound_dtypes, torch_name
from tileops.op.fake import check_given
from tileops.op.leading import flat_view
from tileops.op.spec import DTypeRule, OpSpec, spec_of
from tileops.op.variant import Variant, variant_of


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
    """The program that a call with these arguments would run.

    ``trace`` stands in for the definition's own.

    Tensors (anything with a ``shape``) may be left out where their const sizes are given by
    keyword; an optional one is left out by passing None. What of the given ones a call refuses is
    refused. ArgumentError for a size that nothing gives, or a keyword that names nothing.
    """
    values, extra = definition.bind_arguments(args, kwargs)
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
    _check_inputs(definition, spec, variant, values)
    sizes = _sizes_from_shapes(definition, symbolic, variant, values)
    for name, value in _sizes_from_keywords(definition, variant, extra).items():
        _agree(definition, name, sizes.setdefault(name, value), value)
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


def _dtypes(
    definition: Definition,
    program: Program,
    values: Mapping[str, object],
    extra: Mapping[str, object],
) -> dict[str, DType | None]:
    """The values of the dtype variables: those of the tensors, else as the keywords say."""
    spec = spec_of(program, namespace="tileops", name=definition.name)
    stored = {n: torch_name(values[n]) for n in definition.inputs if n in values}
    bound = bound_dtypes(spec, {n: d for n, d in stored.items() if d is not None})
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
        wanted = _allowed(definition, rule, given) if given is not None else None
        if wanted is not None and value is not None and wanted != value:
            raise ArgumentError(
                f"{definition.name}: dtype '{rule.name}' is given as {wanted} and as {value}"
            )
        found[rule.name] = DType(wanted or value or rule.dtypes[0])
    return found


def _allowed(definition: Definition, rule: DTypeRule, value: object) -> str:
    name = str(dtype_of(value)) if is_dtype_like(value) else repr(value)
    if name not in rule.dtypes:
        raise ArgumentTypeError(
            f"{definition.name}: dtype '{rule.name}': expected {rule.expected}, got {name}"
        )
    return name


def _check_inputs(
    definition: Definition, spec: OpSpec, variant: Variant, values: Mapping[str, object]
) -> None:
    """Refuse values that no call takes for a tensor or a run-time scalar."""
    import torch

    given = {n: values[n] for n in definition.inputs if values.get(n) is not None}
    for name, value in given.items():
        if name in definition.scalars:
            where = f"{definition.name}: argument '{name}'"
            arguments.scalar(where, definition.scalars[name], value)
        elif isinstance(value, torch.Tensor) or not hasattr(value, "shape"):
            arguments.refuse_tensor(definition.name, name, value)
    if definition.options.autocast:  # a call under autocast takes other floats, too
        given = {n: v for n, v in given.items() if not _is_floating(v)}
    check_given(spec, variant, given)


def _is_floating(value: object) -> bool:
    return bool(getattr(getattr(value, "dtype", None), "is_floating_point", False))


def _sizes_from_shapes(
    definition: Definition, program: Program, variant: Variant, values: Mapping[str, object]
) -> dict[str, int]:
    found: dict[str, int] = {}
    ranks = {p.name: p.buffer.ndim for p in program.params if isinstance(p, TensorParam)}
    for rule in variant.tensors:
        shape = getattr(values.get(rule.name), "shape", None)
        if shape is None or rule.raw:
            continue
        least = ranks[rule.name] - rule.leading
        if len(shape) != least and not (rule.leading and len(shape) > least):
            raise ArgumentError(
                f"{definition.name}: argument '{rule.name}': expected {least} "
                f"dimensions{' or more' if rule.leading else ''}, got {len(shape)}"
            )
        stored = rule.extents(flat_view(rule, [int(extent) for extent in shape], None).shape)
        for check, extent in zip(rule.shape, stored, strict=True):
            if check.kind == "eq":
                continue
            size, value = variant.sizes[check.number].name, (extent - check.add) // check.mul
            _agree(definition, size, found.setdefault(size, value), value)
    _add_strides(variant, values, found)
    return found


def _agree(definition: Definition, name: str, known: int, value: int) -> None:
    if known != value:
        raise ArgumentError(f"{definition.name}: size '{name}' is given as {known} and as {value}")


def _add_strides(variant: Variant, values: Mapping[str, object], found: dict[str, int]) -> None:
    """The run-time strides, as the call path binds them.

    That of an extent of 0 or 1 means nothing: it is the contiguous one if nothing else gives it.
    """
    free: dict[str, int] = {}
    for rule in variant.tensors:
        tensor = values.get(rule.name)
        strides = getattr(tensor, "stride", None)
        if rule.raw or rule.strides is None or not callable(strides):
            continue
        extents = [int(extent) for extent in tensor.shape]  # type: ignore[attr-defined]
        view = flat_view(rule, extents, strides())
        shape = rule.extents(view.shape)
        expected = 1
        for place in reversed(range(len(shape))):
            check = rule.strides[place]
            if check.kind == "bind":
                name = variant.sizes[check.number].name
                if shape[place] > 1 and 0 not in shape:
                    found[name] = int(rule.stride(view.strides, place))
                else:
                    free.setdefault(name, expected)
            expected *= max(shape[place], 1)
    for name, value in free.items():
        found.setdefault(name, value)


def _sizes_from_keywords(
    definition: Definition, variant: Variant, extra: Mapping[str, object]
) -> dict[str, int]:
    found: dict[str, int] = {}
    names = [s.name for s in variant.sizes]
    for name, value in extra.items():
        if name not in names or not isinstance(value, int):
            raise ArgumentError(
                f"{definition.name}: '{name}' is neither a parameter nor a size "
                f"({', '.join(names) or 'there are none'}) with an integer value"
            )
        found[name] = value
    return found
