"""The objects of this process that texts of programs stand for: kernels and compile-time values."""

from __future__ import annotations

from typing import Any

from tileops import forks
from tileops.errors import ToolchainError

_kept: dict[str, Any] = {}


def keep(text: str, value: Any) -> str:  # noqa: ANN401 - any object that a program names
    """Let ``kept(text)`` find ``value``; of equal texts the latest counts. Returns ``text``."""
    with forks.guard:
        _kept[text] = value
    return text


def kept(text: str) -> Any:  # noqa: ANN401
    """The object that ``text`` stands for; ToolchainError if no program here has named it."""
    try:
        return _kept[text]
    except KeyError:
        raise ToolchainError(
            f"this process has not met the foreign kernel or value {text[:80]!r}: trace the "
            "program that launches it before its code is compiled here"
        ) from None
