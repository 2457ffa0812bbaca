"""Host programs: integer expressions over sizes and scalars, evaluated at each call.

The instruction list has two evaluators: C++ over int64 for calls, and the one here over ``int`` or
``SymInt`` for fake tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileops.errors import UnsupportedConstructError
from tileops.ir.expr import Binary, Call, Cast, Const, Expr, HostAttr, Select, Unary, Var

SlotValue = Any  # int, or torch.SymInt (SymBool inside a condition)


@dataclass(frozen=True)
class HostProgram:
    """Inputs (``size:0``, ``scalar:0``, ``host:sm_count``), then one slot for each instruction."""

    inputs: tuple[str, ...]
    code: tuple[tuple[Any, ...], ...]

    def to_json(self) -> dict[str, object]:
        """The form that ``op.json``, manifests and the C++ core read."""
        return {"inputs": list(self.inputs), "code": [list(step) for step in self.code]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> HostProgram:
        """The inverse of ``to_json``."""
        return HostProgram(tuple(data["inputs"]), tuple(tuple(step) for step in data["code"]))

    def rename_inputs(self, names: Mapping[str, str]) -> HostProgram:
        """The same program with the inputs in ``names`` renamed."""
        return HostProgram(tuple(names.get(name, name) for name in self.inputs), self.code)

    def evaluate(self, values: Mapping[str, SlotValue]) -> list[SlotValue]:
        """All slots for the given input values; KeyError for a missing input."""
        slots = [values[name] for name in self.inputs]
        for op, *operands in self.code:
            if op == "const":
                slots.append(operands[0])
            else:
                slots.append(_EVALUATE[op](*(slots[n] for n in operands)))
        return slots


class HostProgramBuilder:
    """Collects expressions into one host program; equal sub-expressions share a slot."""

    def __init__(self, inputs: Mapping[int, str]) -> None:
        """``inputs`` maps the id of each variable that may occur to its input name."""
        self._names = inputs
        self._inputs: list[str] = []
        self._code: list[tuple[Any, ...]] = []
        self._seen: dict[object, int] = {}

    def reserve(self, name: str) -> int:
        """The reference of input ``name``, made if it is new."""
        if name not in self._inputs:
            self._inputs.append(name)
        return -1 - self._inputs.index(name)

    def add(self, expr: Expr) -> int:
        """Add an integer or bool expression: its reference, or UnsupportedConstructError."""
        match expr:
            case Var(id=n, name=name):
                if n not in self._names:
                    raise UnsupportedConstructError(
                        f"`{name}` is not known before the launch: no size or grid can depend on it"
                    )
                return self.reserve(self._names[n])
            case HostAttr(name=name):
                return self.reserve(f"host:{name}")
            case Const(value=value):
                return self._emit("const", int(value))
            case Binary(op=op, a=a, b=b) if op in _BINARY and not a.dtype.is_float:
                return self._emit(op, self.add(a), self.add(b))
            case Select(cond=c, a=a, b=b):
                return self._emit("select", self.add(c), self.add(a), self.add(b))
            case _:
                return self._add_rare(expr)

    def _add_rare(self, expr: Expr) -> int:
        match expr:
            case Unary(op="invert", a=a) if not a.dtype.is_bool:
                return self._emit("xor", self.add(a), self._emit("const", -1))
            case Unary(op=op, a=a) if op in ("not", "invert"):
                return self._emit("not", self.add(a))
            case Unary(op="neg", a=a) if not a.dtype.is_float:
                return self._emit("neg", self.add(a))
            case Call(name="abs", args=(a,)) if not a.dtype.is_float:
                ref = self.add(a)
                return self._emit("max", ref, self._emit("neg", ref))
            case Cast(dtype=dtype, a=a) if not (dtype.is_float or a.dtype.is_float):
                ref = self.add(a)
                if dtype.is_bool:
                    return self._emit("ne", ref, self._emit("const", 0))
                # Host arithmetic is int64: sizes of a narrower type are promised to fit.
                return ref
            case _:
                raise UnsupportedConstructError(
                    "a size or a grid extent must be integer arithmetic over sizes and scalars",
                    found=type(expr).__name__ + (f" {expr.name}" if isinstance(expr, Call) else ""),
                )

    def _emit(self, *step: object) -> int:
        if step not in self._seen:
            self._seen[step] = len(self._code)
            self._code.append(step)
        return self._seen[step]

    def finish(self) -> HostProgram:
        """The program; references become slots through ``slot``."""
        code = tuple(
            step if step[0] == "const" else (step[0], *(self.slot(ref) for ref in step[1:]))
            for step in self._code
        )
        return HostProgram(tuple(self._inputs), code)

    def slot(self, reference: int) -> int:
        """The slot of a reference; valid once every input is reserved."""
        return -1 - reference if reference < 0 else len(self._inputs) + reference


def _torch() -> Any:  # noqa: ANN401 - a module
    import torch  # compile workers use host programs and do not pay for torch

    return torch


def _min(a: SlotValue, b: SlotValue) -> SlotValue:
    is_plain = isinstance(a, int) and isinstance(b, int)
    return min(a, b) if is_plain else _torch().sym_min(a, b)


def _max(a: SlotValue, b: SlotValue) -> SlotValue:
    is_plain = isinstance(a, int) and isinstance(b, int)
    return max(a, b) if is_plain else _torch().sym_max(a, b)


def at_least_one(value: SlotValue) -> SlotValue:
    """``max(value, 1)``, without deciding it for a symbolic value."""
    return _max(value, 1)


def holds(relation: SlotValue) -> bool:
    """Whether sizes fit; a compiled graph is guarded by the relation, or checks it when it runs."""
    if isinstance(relation, bool):
        return relation
    from torch.fx.experimental.symbolic_shapes import expect_true

    return expect_true(relation)


def is_stepped_over(extent: SlotValue) -> bool:
    """Whether a dimension has a second element, so that its stride matters."""
    # Like torch's own layout rules, take an extent that depends on data as more than 1.
    if isinstance(extent, int):
        return extent > 1
    from torch.fx.experimental.symbolic_shapes import guard_or_true

    return guard_or_true(extent > 1)


def is_known_empty(shape: Sequence[SlotValue]) -> bool:
    """Whether a tensor has no elements. An extent of 0 is never symbolic: torch compiles for it."""
    return any(type(n) is int and n == 0 for n in shape)


def _select(cond: SlotValue, a: SlotValue, b: SlotValue) -> SlotValue:
    if isinstance(cond, int):
        return a if cond else b
    truth = cond != 0 if isinstance(cond, _torch().SymInt) else cond
    return _torch().sym_ite(truth, a, b)


def _ceildiv(a: SlotValue, b: SlotValue) -> SlotValue:
    if isinstance(b, int) and b > 0:
        # As users write it, so that equal symbolic sizes are recognised as equal.
        return (a + b - 1) // b
    return -(-a // b)


def _truncdiv(a: SlotValue, b: SlotValue) -> SlotValue:
    return _select(_flag((a < 0) == (b < 0)), a // b, -(-a // b))


def _flag(value: SlotValue) -> SlotValue:
    # As in C++, where slots are int64. A SymBool stays symbolic.
    return int(value) if isinstance(value, bool) else value


_EVALUATE: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "ceildiv": _ceildiv,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - b * _truncdiv(a, b),
    "min": _min,
    "max": _max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": lambda a, b: _flag(a == b),
    "ne": lambda a, b: _flag(a != b),
    "lt": lambda a, b: _flag(a < b),
    "le": lambda a, b: _flag(a <= b),
    "gt": lambda a, b: _flag(a > b),
    "ge": lambda a, b: _flag(a >= b),
    "land": lambda a, b: _flag(a != 0) & _flag(b != 0),
    "lor": lambda a, b: _flag(a != 0) | _flag(b != 0),
    "not": lambda a: _flag(a == 0),
    "neg": operator.neg,
    "select": _select,
}

# The operators of two operands that are an IR node's of the same name.
_BINARY = frozenset(_EVALUATE) - {"not", "neg", "select"}
