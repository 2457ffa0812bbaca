"""Owns what constructs ask of arguments that are Python's own: numbers, texts, lists and dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops.errors import ProgramTypeError
from tileops.language.value import as_int, describe


def text(construct: str, what: str, value: object) -> str:
    """``value``, which must be a string."""
    if not isinstance(value, str):
        raise _wrong(construct, what, "a string", value)
    return str(value)


def items(construct: str, what: str, value: object) -> tuple[object, ...]:
    """The items of ``value``, which must be a list or a tuple."""
    if not isinstance(value, (list, tuple)):
        raise _wrong(construct, what, "a list or a tuple", value)
    return tuple(value)


def mapping(construct: str, what: str, value: object) -> Mapping[Any, object]:
    """``value``, which must be a dict."""
    if not isinstance(value, Mapping):
        raise _wrong(construct, what, "a dict", value)
    return value


def number(construct: str, what: str, value: object) -> int:
    """``value``, which must be an int that is known at compile time."""
    found = as_int(value)
    if found is None:
        raise _wrong(construct, what, "an int", value)
    return found


def _wrong(construct: str, what: str, expected: str, value: object) -> ProgramTypeError:
    return ProgramTypeError(
        f"{construct}: {what} is no {expected.partition(' ')[2]}",
        expected=expected,
        found=describe(value),
    )
