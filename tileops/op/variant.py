"""Variants of an op: for each set of compile-time arguments, how its tensors must look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileops.dtypes import DType, storage_names
from tileops.errors import InternalError, ProgramTypeError, ProgramValueError
from tileops.ir.address_sizes import address_sizes
from tileops.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tileops.ir.program import Program, TensorParam
from tileops.op.host_program import HostProgram, HostProgramBuilder
from tileops.op.plain_json import as_float, fields_from_json, fields_to_json
from tileops.op.spec import DTypeRule, OpSpec, dtype_rules, returned_outputs


@dataclass(frozen=True)
class Rule:
    """How one dimension or stride is checked.

    ``bind``: size ``number`` takes the value, or has it already. ``solve``: the value is size *
    ``mul`` + ``add``. ``eq``: the value equals slot ``number``.
    """

    kind: str
    number: int
    mul: int = 1
    add: int = 0

    def to_json(self) -> dict[str, object]:
        """The form of ``op.json``."""
        value: object = [self.number, self.mul, self.add] if self.kind == "solve" else self.number
        return {self.kind: value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Rule:
        """The inverse of ``to_json``; InternalError for anything else."""
        match dict(data):
            case {"solve": [int(number), int(mul), int(add)], **rest} if not rest:
                return Rule("solve", number, mul, add)
            case {"bind": int(number), **rest} if not rest:
                return Rule("bind", number)
            case {"eq": int(number), **rest} if not rest:
                return Rule("eq", number)
        raise InternalError(f"expected a rule, got {data!r:.80}")


@dataclass(frozen=True)
class TensorRule:
    """What one tensor argument must be. ``strides`` None means contiguous.

    ``pack`` elements share one of torch's along the last dimension; rules count elements. ``raw``:
    any tensor is accepted. ``leading``: the first rule is for the product of the leading
    dimensions, and the first stride for their common stride.
    """

    arg: int
    name: str
    dtypes: tuple[str, ...]
    shape: tuple[Rule, ...]
    strides: tuple[Rule, ...] | None
    pack: int = 1
    raw: bool = False
    leading: bool = False

    def extents(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The extents of a tensor of torch's ``shape`` in the rule's elements."""
        return tuple(shape) if self.pack == 1 else (*shape[:-1], shape[-1] * self.pack)

    def stride(self, strides: Sequence[Any], dim: int) -> Any:  # noqa: ANN401
        """One of torch's ``strides`` in the rule's elements; the last lie side by side."""
        step = strides[dim]
        return step if self.pack == 1 or dim + 1 == len(strides) else step * self.pack


@dataclass(frozen=True)
class Output:
    """A tensor that the op allocates: torch dtype name and one slot a dimension.

    ``pack`` elements share one of torch's along the last dimension; the slots count elements.
    ``leading``: the first slot is the product of the call's leading dimensions, which it has.
    """

    dtype: str
    shape: tuple[int, ...]
    pack: int = 1
    leading: bool = False


@dataclass(frozen=True)
class SizeRule:
    """A size variable; ``kind`` const or dynamic, ``bits`` of its type."""

    name: str
    kind: str
    bits: int


@dataclass(frozen=True)
class ScalarRule:
    """A run-time scalar: the number of its argument, its name and its dtype."""

    arg: int
    name: str
    dtype: str


@dataclass(frozen=True)
class Variant:
    """The shape rules of an op under one set of compile-time arguments.

    ``static`` are the values as the op received them (None for the default), then for each optional
    tensor whether it was given, then the dtypes of its dtype rules (None if no given tensor has
    one). ``align_sizes`` must be divisible by 16 for the fast kernel.
    """

    static: tuple[Any, ...]
    tensors: tuple[TensorRule, ...]
    sizes: tuple[SizeRule, ...]
    scalars: tuple[ScalarRule, ...]
    host: HostProgram
    align_sizes: tuple[int, ...]
    outputs: tuple[Output, ...]

    def to_json(self) -> dict[str, object]:
        """The form that the C++ core reads."""
        return fields_to_json(self)

    @staticmethod
    def from_json(data: Mapping[str, Any], spec: OpSpec) -> Variant:
        """The inverse of ``to_json`` for a variant of ``spec``."""
        kinds = [a.kind.removesuffix("?") for a in spec.statics()]
        kinds += ["bool"] * len(spec.optional_tensors())  # whether an optional tensor was given
        kinds += ["str"] * len(spec.dtype_rules)
        values = data["static"]
        if len(values) != len(kinds):
            raise InternalError(
                f"{spec.name}: expected {len(kinds)} static values, got {values!r:.80}"
            )
        pairs = zip(values, kinds, strict=True)
        static = [as_float(value) if kind == "float" else value for value, kind in pairs]
        return fields_from_json(Variant, {**data, "static": static})


def pack_of(dtype: DType) -> int:
    """How many elements of ``dtype`` one element of the torch tensor holds."""
    return 8 // dtype.bits if dtype.bits < 8 else 1


def variant_of(program: Program, spec: OpSpec, static: Sequence[object]) -> Variant:
    """The variant that ``program``, traced with symbolic sizes, describes.

    ProgramValueError for a size that no argument determines; ProgramTypeError where the trace takes
    or returns other tensors than the op's schema says.
    """
    _check_matches(program, spec, static)
    return _VariantBuilder(program, spec).build(tuple(static))


def _check_matches(program: Program, spec: OpSpec, static: Sequence[object]) -> None:
    _, given, _ = spec.parts(static)
    pairs = zip(spec.optional_tensors(), given, strict=True)
    left_out = {a.name for a, is_given in pairs if not is_given}
    found = tuple(p.name for p in program.params if not getattr(p, "allocated", False))
    expected = tuple(a.name for a in spec.inputs() if a.name not in left_out)
    if found != expected:
        raise ProgramTypeError(
            f"op {spec.qualified_name}: compile-time arguments may not change which tensors and "
            "scalars a program takes",
            expected=", ".join(expected),
            found=", ".join(found),
        )
    rules = dtype_rules(program, spec)
    if rules != spec.dtype_rules:
        raise ProgramTypeError(
            f"op {spec.qualified_name}: compile-time arguments may not change which dtype "
            "variables a program has, nor which tensors have them",
            expected=", ".join(map(_rule_text, spec.dtype_rules)) or "none",
            found=", ".join(map(_rule_text, rules)) or "none",
        )
    if returned_outputs(program) != spec.returns:
        raise ProgramTypeError(
            f"op {spec.qualified_name}: compile-time arguments may not change which tensors a "
            "program returns",
            expected=str(spec.returns),
            found=str(returned_outputs(program)),
        )


def _rule_text(rule: DTypeRule) -> str:
    return f"{rule.name} of {rule.expected}"


class _VariantBuilder:
    """Turns parameters into rules: first the dimensions that are a size alone, then equations."""

    def __init__(self, program: Program, spec: OpSpec) -> None:
        self.program = program
        self.spec = spec
        self.numbers = {size.var.id: n for n, size in enumerate(program.sizes)}
        names = {size.var.id: f"size:{n}" for n, size in enumerate(program.sizes)}
        names.update(
            (s.var.id, f"scalar:{n}")
            for n, s in enumerate(program.scalars())
            if not s.var.dtype.is_float
        )
        self.host = HostProgramBuilder(names)
        # Every size and scalar is an input, needed or not: the slots of the entries share the
        # numbering and must not depend on the variant's expressions.
        for name in names.values():
            self.host.reserve(name)
        self.bound: set[int] = set()

    def build(self, static: tuple[object, ...]) -> Variant:
        params = [p for p in self.program.tensors() if not p.allocated]
        places = [
            (p, kind, d, expr)
            for kind in ("shape", "strides")
            for p in params
            for d, expr in enumerate(getattr(p.buffer, kind) or ())
        ]
        rules = self._rules(places)
        for size in self.program.sizes:
            if size.var.id not in self.bound:
                raise ProgramValueError(
                    f"size `{size.var.name}` cannot be determined from the arguments: it must be a "
                    "dimension or a stride of a tensor, or the one unknown of a linear dimension"
                )
        outputs = [p for p in self.program.tensors() if p.allocated]
        slots = [[self.host.add(e) for e in p.buffer.shape] for p in outputs]
        return Variant(
            static=static,
            tensors=tuple(self._tensor(p, rules) for p in params),
            sizes=tuple(SizeRule(s.var.name, s.kind, s.var.dtype.bits) for s in self.program.sizes),
            scalars=tuple(
                ScalarRule(self.spec.index_of(s.name), s.name, str(s.var.dtype))
                for s in self.program.scalars()
            ),
            host=self.host.finish(),
            align_sizes=aligned_sizes(self.program),
            outputs=tuple(
                Output(
                    storage_names(p.buffer.dtype)[0],
                    tuple(self.host.slot(ref) for ref in shape),
                    pack_of(p.buffer.dtype),
                    p.leading,
                )
                for p, shape in zip(outputs, slots, strict=True)
            ),
        )

    def _rules(
        self, places: list[tuple[TensorParam, str, int, Expr]]
    ) -> dict[tuple[str, str, int], Rule]:
        rules: dict[tuple[str, str, int], Rule] = {}
        rest = []
        for param, kind, d, expr in places:
            if isinstance(expr, Var) and expr.id in self.numbers:
                self.bound.add(expr.id)
                rules[param.name, kind, d] = Rule("bind", self.numbers[expr.id])
            else:
                rest.append((param, kind, d, expr))
        for param, kind, d, expr in rest:
            # A stride means nothing if its dimension has one element, so it determines no size.
            solved = self._solve(expr) if kind == "shape" else None
            rules[param.name, kind, d] = solved or Rule("eq", self.host.add(expr))
        return rules

    def _solve(self, expr: Expr) -> Rule | None:
        linear = _linear(expr)
        if linear is None:
            return None
        var, mul, add = linear
        if var.id not in self.numbers or var.id in self.bound or mul < 1:
            return None
        self.bound.add(var.id)
        return Rule("solve", self.numbers[var.id], mul, add)

    def _tensor(self, param: TensorParam, rules: Mapping[tuple[str, str, int], Rule]) -> TensorRule:
        def final(kind: str, count: int) -> tuple[Rule, ...]:
            found = (rules[param.name, kind, d] for d in range(count))
            return tuple(
                Rule("eq", self.host.slot(r.number)) if r.kind == "eq" else r for r in found
            )

        strides, dtype = param.buffer.strides, param.buffer.dtype
        arg = self.spec.index_of(param.name)
        stored = storage_names(dtype)
        for rule in self.spec.dtype_rules:
            if arg in rule.args:
                stored = tuple(s for s in stored if rule.tile_dtype(s) == dtype)
        return TensorRule(
            arg=arg,
            name=param.name,
            dtypes=stored,
            shape=final("shape", param.buffer.ndim),
            strides=None if strides is None else final("strides", len(strides)),
            pack=pack_of(dtype),
            raw=param.raw,
            leading=param.leading,
        )


def _linear(expr: Expr) -> tuple[Var, int, int] | None:
    """``expr`` as (variable, mul, add) if it is linear in one variable."""
    match expr:
        case Var():
            return expr, 1, 0
        case Cast(dtype=dtype, a=a) if dtype.is_integer:
            factor, shift = 1, 0
        case Unary(op="neg", a=a):
            factor, shift = -1, 0
        case Binary(op="add", a=a, b=Const(value=v)) | Binary(op="add", a=Const(value=v), b=a):
            factor, shift = 1, int(v)
        case Binary(op="mul", a=a, b=Const(value=v)) | Binary(op="mul", a=Const(value=v), b=a):
            factor, shift = int(v), 0
        case Binary(op="sub", a=a, b=Const(value=v)):
            factor, shift = 1, -int(v)
        case Binary(op="sub", a=Const(value=v), b=a):
            factor, shift = -1, int(v)
        case _:
            return None
    inner = _linear(a)
    return inner and (inner[0], inner[1] * factor, inner[2] * factor + shift)


def aligned_sizes(program: Program) -> tuple[int, ...]:
    """Numbers of the sizes that must be divisible by 16 for the fast kernel."""
    needed = address_sizes(program)
    return tuple(n for n, size in enumerate(program.sizes) if size.var.id in needed)
