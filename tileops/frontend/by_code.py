"""Owns tables keyed by code objects, each of which is itself alone."""

from __future__ import annotations

from types import CodeType
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByCode(Generic[Value]):
    """What is known of code objects.

    Python takes two code objects for equal whose instructions and first lines are: annotations of
    locals are no instructions, so an edited program may be equal to the one before it.
    """

    def __init__(self) -> None:
        # The code is held, so that no other one gets its id.
        self._known: dict[int, tuple[CodeType, Value]] = {}

    def get(self, code: CodeType) -> Value | None:
        """What is known of ``code``; None for nothing."""
        found = self._known.get(id(code))
        return None if found is None else found[1]

    def put(self, code: CodeType, value: Value) -> Value:
        """Keep ``value``, unless something is known of ``code``; returns what is known then."""
        return self._known.setdefault(id(code), (code, value))[1]

    def drop(self, code: CodeType) -> None:
        """Forget ``code``."""
        self._known.pop(id(code), None)
