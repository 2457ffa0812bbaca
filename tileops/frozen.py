"""Owns ``frozen``: frozen dataclasses that cost little to define.

``dataclass(frozen=True)`` writes and compiles six functions for each class, in every process; for
all the classes of a warm start that took longer than the rest of its work. Here the classes share
one function for each purpose. To make an object takes as long where all goes by position, and half
as long again by name.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[_T]) -> type[_T]:
    """Make ``cls`` what ``dataclass(frozen=True)`` makes of it; ``replace`` and ``fields`` take it.

    Methods that the class defines itself stay. A field that was left at its default is found in
    the class, not in the object.
    """
    made = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    made.__layout__ = _Layout(made)  # type: ignore[attr-defined]
    for name, method in _METHODS.items():
        if name not in vars(made):
            setattr(made, name, method)
    return made


def field_names(value: object) -> tuple[str, ...]:
    """Names of the fields of an object whose class is ``frozen``, in order."""
    layout: _Layout = value.__layout__  # type: ignore[attr-defined]
    return layout.names


class _Layout:
    """The fields of one class, in the forms in which its methods use them."""

    def __init__(self, cls: type) -> None:
        fields = dataclasses.fields(cls)
        self.positional: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
        self.names = tuple(f.name for f in fields)
        self.shown = tuple(f.name for f in fields if f.repr)
        self.compared = _getter([f.name for f in fields if f.compare])
        self.has_check = hasattr(cls, "__post_init__")
        self._factories = {
            f.name: f.default_factory
            for f in fields
            if f.default_factory is not dataclasses.MISSING
        }
        missing = [f.name for f in fields if f.default is dataclasses.MISSING]
        self._required = frozenset(missing) - self._factories.keys()
        # The least number of positional arguments that need no others beside them.
        self.enough = len(self._required)
        self.most = len(self.positional)
        if self._factories or not self._required <= {*self.positional}:
            self.enough = self.most + 1

    def completed(
        self, cls: type, args: tuple[object, ...], named: dict[str, object]
    ) -> Mapping[str, object]:
        """The arguments beside the positional ones: those by name, and what factories make."""
        given = {*self.positional[: len(args)], *named}
        if not self._required <= given <= {*self.names} or len(given) != len(args) + len(named):
            raise TypeError(
                f"{cls.__qualname__}: expected {', '.join(sorted(self._required))} of "
                f"{', '.join(self.names)}; got {len(args)} by position and "
                f"{', '.join(named) or 'none'} by name"
            )
        if not self._factories:
            return named
        return {**{n: make() for n, make in self._factories.items() if n not in given}, **named}


def _getter(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


_set = object.__setattr__


def _init(self: Any, *args: object, **named: object) -> None:  # noqa: ANN401 - of any such class
    layout: _Layout = self.__layout__
    rest: Mapping[str, object] = named
    if named or not layout.enough <= len(args) <= layout.most:
        rest = layout.completed(type(self), args, named)
    for name, value in zip(layout.positional, args):  # noqa: B905 - strict= would cost a quarter
        _set(self, name, value)
    for name, value in rest.items():
        _set(self, name, value)
    if layout.has_check:
        self.__post_init__()


def _repr(self: Any) -> str:  # noqa: ANN401
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__layout__.shown)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: Any) -> Any:  # noqa: ANN401
    if self is other:
        return True
    if type(self) is not type(other):
        return NotImplemented
    layout: _Layout = self.__layout__
    return layout.compared(self) == layout.compared(other)


def _hash(self: Any) -> int:  # noqa: ANN401
    return hash(self.__layout__.compared(self))


def _setattr(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS: dict[str, Callable[..., object]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
}
