"""Dataclasses as plain JSON and back, by their fields: no field can be forgotten."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tileops.errors import InternalError

Made = TypeVar("Made")


def fields_to_json(value: Any) -> dict[str, object]:  # noqa: ANN401
    """A dataclass as an object with all its fields; one that has ``to_json`` decides for itself."""
    return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _plain(value: object) -> object:
    own: Callable[[], object] | None = getattr(value, "to_json", None)
    if own is not None:
        return own()
    if dataclasses.is_dataclass(value):
        return fields_to_json(value)
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else number(value)


def number(value: object) -> object:
    """A static argument in JSON: infinities and NaN, which JSON lacks, become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def as_float(value: object) -> object:
    """The inverse of ``number`` for the value of a float argument."""
    return float(str(value)) if value in ("inf", "-inf", "nan") else value


def fields_from_json(cls: type[Made], data: Mapping[str, Any]) -> Made:
    """The inverse of ``fields_to_json``.

    A field that the file lacks, which is newer than the file, takes its default. InternalError if
    it has none, for a member that is not a field, and for a value of another type.
    """
    hints = _hints(cls)  # type: ignore[arg-type]  # a type is hashable
    if not isinstance(data, Mapping):
        raise InternalError(f"{cls.__name__}: expected an object, got {data!r:.80}")
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise InternalError(f"{cls.__name__}: unknown member {', '.join(map(repr, unknown))}")
    made = {name: _read(hints[name], value, name) for name, value in data.items()}
    try:
        return cls(**made)
    except TypeError as error:
        raise InternalError(f"{cls.__name__}: {error}") from None


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _read(hint: Any, data: Any, name: str) -> Any:  # noqa: ANN401
    own = getattr(hint, "from_json", None)
    if own is not None:
        return own(data)
    if dataclasses.is_dataclass(hint):
        return fields_from_json(typing.cast("type", hint), data)
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and isinstance(data, (list, tuple)):
        kinds = parts[:1] * len(data) if parts[1:] == (...,) else parts
        if len(kinds) == len(data):
            return tuple(_read(k, item, name) for k, item in zip(kinds, data, strict=True))
    elif typing.get_origin(hint) in (types.UnionType, typing.Union) and parts[1:] == (type(None),):
        return None if data is None else _read(parts[0], data, name)
    elif hint is Any or type(data) is hint:
        return data
    raise InternalError(f"'{name}': expected {hint}, got {data!r:.80}")
