"""An op as a value: name, arguments and returns, and the schema text that torch reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tileops.dtypes import by_storage
from tileops.errors import ArgumentTypeError, InternalError
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.ir.walk import written_ids
from tileops.op import plain_json

FORMAT = 1
STATIC_KINDS = ("int", "bool", "float", "str", "int[]")


@dataclass(frozen=True)
class ArgSpec:
    """One argument of an op.

    ``kind`` is tensor, int, float, bool, str, int[] or device, with ``?`` if None is accepted; None
    is then the default unless ``is_required``. ``role`` is tensor, scalar (a run-time value),
    static (a compile-time value) or device. ``standard`` is the default of a static argument as
    JSON; None if a tuner or the program chooses the value.
    """

    name: str
    kind: str
    role: str
    mutated: bool = False
    is_required: bool = False
    standard: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.standard, list):  # as JSON has it
            object.__setattr__(self, "standard", tuple(self.standard))

    def is_standard(self, value: object) -> bool:
        """Whether ``value``, as an op receives it, means the same as no value."""
        if self.standard is None or value is None:
            return value is None
        if self.kind.startswith("float") and isinstance(value, int):
            value = float(value)
        found = standard_of(value)
        return (type(found), repr(found)) == (type(self.standard), repr(self.standard))

    def declaration(self, alias: str) -> str:
        """The argument as schema text; ``alias`` marks a mutated tensor."""
        base, optional = self.kind.removesuffix("?"), self.kind.endswith("?")
        if base == "tensor":
            base = f"Tensor({alias}!)" if self.mutated else "Tensor"
        elif base == "device":
            base = "Device"
        elif base == "int" and self.role == "scalar":
            base = "SymInt"
        default = "=None" if optional and not self.is_required else ""
        return f"{base}{'?' if optional else ''} {self.name}{default}"


@dataclass(frozen=True)
class DTypeRule:
    """A dtype that each call decides: the dtype variable ``name`` of the program.

    ``args`` are the numbers of the tensors that have it; ``stored`` are the names of the torch
    dtypes that these may have, each with the name of the tile dtype that it stands for.
    """

    name: str
    args: tuple[int, ...]
    stored: tuple[tuple[str, str], ...]

    def tile_dtype(self, stored: str) -> str | None:
        """The tile dtype of a tensor with torch dtype ``stored``; None if it is not allowed."""
        return dict(self.stored).get(stored)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The tile dtypes, in the order in which the program lists them."""
        return tuple(dict.fromkeys(dtype for _, dtype in self.stored))

    @property
    def expected(self) -> str:
        """The torch dtypes that a call may give, in words."""
        *first, last = (stored for stored, _ in self.stored)
        return f"{', '.join(first)} or {last}" if first else last


@dataclass(frozen=True)
class OpSpec:
    """What torch knows about an op; it never changes after registration.

    ``args`` are in schema order: tensors and scalars (positional), then statics and the device
    (keyword only). ``returns`` are numbers of allocated tensors, in the order of the results.
    ``copies_inputs``: a tensor that must be contiguous and is not is copied, not refused.
    ``dtype_rules`` are dtypes that choose a variant, as compile-time arguments do.
    """

    namespace: str
    name: str
    args: tuple[ArgSpec, ...]
    returns: tuple[int, ...]
    copies_inputs: bool = False
    dtype_rules: tuple[DTypeRule, ...] = ()

    @property
    def qualified_name(self) -> str:
        """``namespace::name``."""
        return f"{self.namespace}::{self.name}"

    @property
    def title(self) -> str:
        """The name in messages, without the namespace ``tileops``."""
        return self.name if self.namespace == "tileops" else self.qualified_name

    @property
    def schema(self) -> str:
        """The schema without its namespace: ``f(Tensor A, *, int? block_M=None) -> Tensor``."""
        parts: list[str] = []
        mutated = 0
        for arg in self.args:
            if arg.role in ("static", "device") and "*" not in parts:
                parts.append("*")
            alias = chr(ord("a") + mutated) if mutated < 26 else f"a{mutated}"
            parts.append(arg.declaration(alias))
            mutated += arg.mutated
        count = len(self.returns)
        returns = "Tensor" if count == 1 else "(" + ", ".join(["Tensor"] * count) + ")"
        return f"{self.name}({', '.join(parts)}) -> {returns}"

    def statics(self) -> tuple[ArgSpec, ...]:
        """The compile-time arguments, in schema order."""
        return tuple(a for a in self.args if a.role == "static")

    def optional_tensors(self) -> tuple[ArgSpec, ...]:
        """The tensors that a call may leave out, in schema order."""
        return tuple(a for a in self.args if a.kind == "tensor?")

    def inputs(self) -> tuple[ArgSpec, ...]:
        """The positional arguments: tensors and run-time scalars."""
        return tuple(a for a in self.args if a.role in ("tensor", "scalar"))

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        return {**dict(zip((a.name for a in self.inputs()), args, strict=False)), **kwargs}

    def normal(self, static: Sequence[object]) -> tuple[object, ...]:
        """What chooses a variant, with None for each argument that has its standard value."""
        args = self.statics()
        given = (
            None if arg.is_standard(value) else value
            for arg, value in zip(args, static, strict=False)
        )
        return (*given, *static[len(args) :])

    def parts(
        self, static: Sequence[object]
    ) -> tuple[tuple[object, ...], tuple[bool, ...], dict[str, str | None]]:
        """Compile-time arguments, which optional tensors were given, and dtypes by rule."""
        first, second = len(self.statics()), len(self.optional_tensors())
        rest = static[first + second :]
        dtypes = {
            rule.name: None if value is None else str(value)
            for rule, value in zip(self.dtype_rules, rest, strict=True)
        }
        given = tuple(bool(value) for value in static[first : first + second])
        return tuple(static[:first]), given, dtypes

    def index_of(self, name: str) -> int:
        """The position of argument ``name`` in schema order; InternalError if there is none."""
        for n, arg in enumerate(self.args):
            if arg.name == name:
                return n
        raise InternalError(f"op {self.qualified_name} has no argument {name!r}")

    def to_json(self) -> dict[str, object]:
        """The part of ``op.json`` that describes the op."""
        fields = plain_json.fields_to_json(self)
        fields["contiguous"] = "copy" if fields.pop("copies_inputs") else "require"
        fields["returns"] = [f"alloc:{n}" for n in self.returns]
        return {"format": FORMAT, "schema": self.schema, **fields}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> OpSpec:
        """The inverse of ``to_json``; InternalError for another format or a malformed op."""
        fields = dict(data)
        version, schema = fields.pop("format", None), fields.pop("schema", None)
        if version != FORMAT:
            raise InternalError(f"op.json: expected format {FORMAT}, got {version!r}")
        fields["copies_inputs"] = fields.pop("contiguous", "require") == "copy"
        fields["returns"] = [int(text.removeprefix("alloc:")) for text in fields["returns"]]
        spec = plain_json.fields_from_json(OpSpec, fields)
        if not all("is_required" in arg for arg in data["args"]):  # of an earlier version
            count = len(spec.inputs())
            args = (*with_defaults(list(spec.args[:count])), *spec.args[count:])
            spec = replace(spec, args=args)
        if spec.schema != schema:
            raise InternalError(
                f"op.json: the arguments of {spec.qualified_name} make the schema {spec.schema}, "
                f"not {schema!r:.200}"
            )
        return spec


def standard_of(value: object) -> Any:  # noqa: ANN401
    """A default, as an op receives it, in the form of ``ArgSpec.standard``."""
    return tuple(value) if isinstance(value, list) else plain_json.number(value)


def written_parameters(program: Program) -> frozenset[str]:
    """Names of the tensors passed in (not allocated) that some statement of ``program`` writes."""
    written = written_ids(program.launches)
    written |= {b.id for e in program.externs for b in e.written_buffers()}
    return frozenset(
        p.name for p in program.tensors() if not p.allocated and p.buffer.id in written
    )


def spec_of(
    program: Program,
    *,
    namespace: str,
    name: str,
    statics: tuple[ArgSpec, ...] = (),
    mutates: frozenset[str] | None = None,
    optional: frozenset[str] = frozenset(),
    copies_inputs: bool = False,
) -> OpSpec:
    """The spec of ``program``, whose parameters become the positional arguments in their order.

    ``mutates`` names the mutated tensors; None takes what the program writes. ``optional`` names
    the tensors that a call may leave out; ``program`` has them all, and all dtype variables.
    """
    mutated = written_parameters(program) if mutates is None else mutates
    args: list[ArgSpec] = []
    for param in program.params:
        match param:
            case TensorParam(allocated=True):
                continue
            case TensorParam():
                kind = "tensor?" if param.name in optional else "tensor"
                args.append(ArgSpec(param.name, kind, "tensor", param.name in mutated))
            case ScalarParam():
                dtype = param.var.dtype
                kind = "bool" if dtype.is_bool else "float" if dtype.is_float else "int"
                args.append(ArgSpec(param.name, kind, "scalar"))
    args = with_defaults(args)
    args.extend(statics)
    if not any(a.role == "tensor" for a in args):
        args.append(ArgSpec("device", "device?", "device"))
    spec = OpSpec(namespace, name, tuple(args), returned_outputs(program), copies_inputs)
    return replace(spec, dtype_rules=dtype_rules(program, spec))


def dtype_rules(program: Program, spec: OpSpec) -> tuple[DTypeRule, ...]:
    """The dtype variables of ``program`` as rules of the arguments that ``spec`` has."""
    names = {a.name for a in spec.args}
    return tuple(
        DTypeRule(
            v.name,
            tuple(spec.index_of(p) for p in v.params if p in names),
            tuple((stored, str(dtype)) for stored, dtype in by_storage(v.dtypes).items()),
        )
        for v in program.dtype_vars
    )


def bound_dtypes(spec: OpSpec, values: Mapping[str, object]) -> tuple[str | None, ...]:
    """The tile dtype of each dtype rule; None if no tensor with it was given.

    ``values`` are a call's arguments by name. ArgumentTypeError for a dtype that is not allowed, or
    two tensors of one rule that differ.
    """
    stored = {
        name: str(dtype).removeprefix("torch.")
        for name, value in values.items()
        if (dtype := getattr(value, "dtype", None)) is not None
    }
    return tuple(_bound(spec, rule, stored) for rule in spec.dtype_rules)


def _bound(spec: OpSpec, rule: DTypeRule, stored: Mapping[str, str]) -> str | None:
    names = [spec.args[n].name for n in rule.args]
    given = [(name, stored[name]) for name in names if name in stored]
    if not given:
        return None
    first, dtype = given[0]
    found = rule.tile_dtype(dtype)
    if found is None:
        raise ArgumentTypeError(
            f"{spec.name}: argument '{first}': expected dtype {rule.expected} ({rule.name}), got "
            f"{dtype}"
        )
    for name, other in given[1:]:
        if rule.tile_dtype(other) != found:
            raise ArgumentTypeError(
                f"{spec.name}: argument '{name}': expected dtype {dtype}, which '{first}' has "
                f"({rule.name}), got {other}"
            )
    return found


def with_defaults(args: list[ArgSpec]) -> list[ArgSpec]:
    """The inputs of an op; in a schema only the last ones can have a default."""
    last = max((n for n, a in enumerate(args) if not a.kind.endswith("?")), default=-1)
    return [replace(a, is_required=n < last) for n, a in enumerate(args)]


def returned_outputs(program: Program) -> tuple[int, ...]:
    """What the program returns, as numbers among its allocated tensors."""
    allocated = [
        n for n, p in enumerate(program.params) if isinstance(p, TensorParam) and p.allocated
    ]
    return tuple(allocated.index(n) for n in program.returns)
