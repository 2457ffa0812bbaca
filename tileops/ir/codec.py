"""The JSON form of a traced program, for processes that must not run its author's code."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from tileops.dtypes import DType, dtype_of
from tileops.errors import InternalError
from tileops.ir import explicit, expr, extern, program, stmt, threads, tile_operations
from tileops.ir.program import Program
from tileops.location import Location

FORMAT = 1

# The classes that a text may name.
_CLASSES: dict[str, type] = {
    name: value
    for module in (expr, stmt, tile_operations, explicit, threads, extern, program)
    for name, value in vars(module).items()
    if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
} | {"Location": Location}


def encode_program(value: Program) -> str:
    """The program as JSON text; nodes that are one object stay one object.

    InternalError for a value that the IR does not have.
    """
    encoder = _Encoder()
    root = encoder.encode(value)
    return json.dumps({"format": FORMAT, "nodes": encoder.nodes, "root": root})


def decode_program(text: str) -> Program:
    """The program of a text that ``encode_program`` made: equal to it, locations included.

    InternalError for any other text.
    """
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise InternalError(f"program text: format {content['format']!r}")
        nodes: list[object] = []
        for name, held in content["nodes"]:
            given = {key: _decoded(item, nodes) for key, item in held.items()}
            nodes.append(_CLASSES[name](**given))
        found = _decoded(content["root"], nodes)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InternalError(f"program text: {type(error).__name__}: {error}") from None
    if not isinstance(found, Program):
        raise InternalError(f"program text: holds a {type(found).__name__}")
    return found


class _Encoder:
    def __init__(self) -> None:
        self.nodes: list[list[Any]] = []
        self._numbers: dict[int, int] = {}  # by identity: the program keeps its nodes alive

    def encode(self, value: object) -> object:
        match value:
            case DType():
                return {"dtype": str(value)}
            case float() if not math.isfinite(value):
                return {"float": repr(value)}
            case None | bool() | int() | float() | str():
                return value
            case tuple():
                return [self.encode(item) for item in value]
            case _ if type(value).__name__ in _CLASSES:
                return {"node": self._node(value)}
            case _:
                raise InternalError(f"program text: no form for {type(value).__name__}")

    def _node(self, value: Any) -> int:  # noqa: ANN401 - any node of the IR
        number = self._numbers.get(id(value))
        if number is None:
            content = {f.name: self.encode(getattr(value, f.name)) for f in fields(value)}
            number = self._numbers[id(value)] = len(self.nodes)
            self.nodes.append([type(value).__name__, content])
        return number


def _decoded(value: object, nodes: list[object]) -> object:
    match value:
        case {"dtype": str(name)}:
            return dtype_of(name)
        case {"float": str(text)}:
            return float(text)
        case {"node": int(number)}:
            return nodes[number]
        case list():
            return tuple(_decoded(item, nodes) for item in value)
        case _:
            return value
