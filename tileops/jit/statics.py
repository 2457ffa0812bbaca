"""Compile-time arguments: what a schema and a traced region carry, and when two are equal."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tileops.dtypes import DType, dtype_of, is_dtype_like
from tileops.errors import ArgumentTypeError
from tileops.language.value import Value
from tileops.op.call_inputs import is_carried, shown
from tileops.op.spec import ArgSpec, standard_of
from tileops.optional_torch import torch

_F = TypeVar("_F", bound=Callable[..., Any])
EMPTY = inspect.Parameter.empty


class NotCarriedError(Exception):
    """A value that the schema's type for its argument cannot carry; it must be bound instead."""


@dataclass(frozen=True)
class StaticParam:
    """A compile-time parameter of a program.

    ``kind`` is the schema type that carries it; None if none can, so that the value is bound to the
    op. ``default`` is EMPTY if the caller must give a value.
    """

    name: str
    kind: str | None
    default: object = EMPTY
    is_annotated: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is EMPTY

    def arg(self, *, is_chosen: bool) -> ArgSpec:
        """The op's argument; with ``is_chosen`` a tuner may replace the default."""
        assert self.kind is not None
        standard = None
        if not self.is_required and not is_chosen and self.default is not None:
            standard = standard_of(self.encode(self.default))
        kind = self.kind + ("" if self.is_required else "?")
        return ArgSpec(self.name, kind, "static", standard=standard)

    def encode(self, value: object) -> object:
        """``value`` as the op takes it; NotCarriedError if the schema's type cannot carry it.

        ArgumentTypeError if the annotation asks for another type.
        """
        if value is None and self.default is None:
            return None
        encoded = _encode(self.kind, value)
        if encoded is not None:
            return encoded
        if self.is_annotated and self.kind is not None and value is not None:
            raise ArgumentTypeError(
                f"argument '{self.name}': expected {self.kind}, got {_described(value)}"
            )
        raise NotCarriedError(self.name)

    def says_nothing(self, value: object, *, is_tuned: bool) -> bool:
        """Whether a call with ``value``, which no schema carries, is one that leaves it out."""
        if self.kind is not None or self.is_required or (is_tuned and self.default is not None):
            return False
        return value is self.default or freeze(value) == freeze(self.default)

    def decode(self, value: object) -> object:
        """What the program sees for ``value`` of the op: None means the default."""
        if value is None:
            return self.default
        if isinstance(value, str):
            # A dtype is a str equal to its name, so a plain string that happens to be one loses
            # nothing.
            return DType(dtype_of(value)) if is_dtype_like(value) else value
        if isinstance(value, (list, tuple)):
            return list(value) if isinstance(self.default, list) else tuple(value)
        return value


def static_param(
    name: str, default: object, annotation: object, value: object = EMPTY
) -> StaticParam:
    """The parameter; its annotation decides the kind, or its default, or its first value."""
    kind = annotated = _kind_of_annotation(annotation)
    for sample in (default, value):
        if kind is None and sample is not EMPTY and sample is not None:
            kind = kind_of_value(sample)
    if default is not EMPTY and default is not None and _encode(kind, default) is None:
        kind = None  # the annotation does not describe the default
    return StaticParam(name, kind, default, is_annotated=annotated is not None)


def kind_of_value(value: object) -> str | None:
    """The schema type of a value: int, bool, float, str, int[]; None for others."""
    for kind in ("bool", "int", "str", "float", "int[]"):
        if (kind == "float") <= isinstance(value, float) and _encode(kind, value) is not None:
            return kind
    return None


def _encode(kind: str | None, value: object) -> object:
    match kind:
        case "bool" if isinstance(value, bool):
            return value
        case "int" if _is_integer(value):
            return _index(value)
        case "float" if isinstance(value, float) or _is_integer(value):
            try:
                return float(value)  # type: ignore[arg-type]
            except (TypeError, ValueError, RuntimeError, OverflowError):
                return None
        case "str":
            return _encode_text(value)
        case "int[]" if isinstance(value, (list, tuple)) and all(map(_is_integer, value)):
            items = [_index(v) for v in value]
            return None if None in items else items
        case _:
            return None


def _is_integer(value: object) -> bool:
    return hasattr(type(value), "__index__") and not isinstance(value, bool)


def _index(value: Any) -> int | None:  # noqa: ANN401
    """The integer that a schema carries for ``value``; None for others, such as a float tensor."""
    try:
        integer = operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return integer if is_carried(integer) else None


def _described(value: object) -> str:
    is_far = isinstance(value, int) and _index(value) is None
    return shown(value) if is_far or hasattr(value, "shape") else type(value).__name__


def _encode_text(value: object) -> str | None:
    if isinstance(value, str):
        return str.__str__(value) if type(value) is str else "".join(value)
    if value in (int, float, bool) or not is_dtype_like(value):
        return None
    return "".join(dtype_of(value))


_BY_TYPE: dict[object, str] = {int: "int", bool: "bool", float: "float", str: "str", DType: "str"}
_BY_TEXT = {
    **{name: name for name in ("int", "bool", "float", "str")},
    **dict.fromkeys(("dtype", "T.dtype", "torch.dtype"), "str"),
    **dict.fromkeys(("list[int]", "tuple[int, ...]"), "int[]"),
}


def _kind_of_annotation(annotation: object) -> str | None:
    if annotation is EMPTY or annotation is None:
        return None
    if isinstance(annotation, type) and annotation in _BY_TYPE:
        return _BY_TYPE[annotation]
    text = str(annotation)
    if not isinstance(annotation, str):
        text = text.replace("typing.", "").replace("List[", "list[").replace("Tuple[", "tuple[")
    first = text.split("|")[0].strip()
    return _BY_TEXT.get(first.removeprefix("Optional[").rstrip("]")) or _BY_TEXT.get(first)


def freeze(value: object) -> object:
    """A hashable key, equal for equal values of one type; ArgumentTypeError if there is none."""
    match value:
        case Mapping():
            items = [(freeze(k), freeze(v)) for k, v in value.items()]
            return ("mapping", tuple(sorted(items, key=repr)))
        case list() | tuple():
            return (type(value).__name__, tuple(freeze(v) for v in value))
        case set() | frozenset():
            return ("set", frozenset(freeze(v) for v in value))
        case float():
            return ("float", repr(value))
        case Value():  # a size that T.dynamic made outside a program equals only itself
            return ("size", value.expr)
    try:
        hash(value)
    except TypeError:
        raise ArgumentTypeError(
            f"a compile-time argument must be hashable, a list, a dict or a set; got "
            f"{type(value).__name__}"
        ) from None
    return (type(value), value)


def freeze_all(values: Iterable[tuple[str, Any]]) -> tuple[object, ...]:
    """``freeze`` of named values, in their order."""
    return tuple((name, freeze(value)) for name, value in values)


def constant(function: _F) -> _F:
    """Mark ``function``: Dynamo calls it once while tracing, with constants; the result stays."""
    # As torch.compiler.assume_constant_result does, without importing Dynamo: that takes longer
    # than all else at a first call, imports Triton, and a program that is not traced needs neither.
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def with_constant_sizes(value: Any) -> Any:  # noqa: ANN401
    """``value`` with constants for symbolic sizes, those in a tuple or list included."""
    if type(value) is int:
        return operator.index(value)
    if type(value) in (tuple, list, torch.Size):
        items = [with_constant_sizes(item) for item in value]
        return items if type(value) is list else tuple(items)
    return value


def traceable(value: Any) -> Any:  # noqa: ANN401
    """``value`` as a ``constant`` function takes it in a traced region."""
    # Dynamo of torch 2.11 knows no constants of a subclass of str.
    return value.text if isinstance(value, DType) else with_constant_sizes(value)
