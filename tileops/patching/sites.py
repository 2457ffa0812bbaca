"""Places of a model that may be replaced: an attribute of one instance, and what goes there."""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import Any, Protocol

from torch import nn

from tileops.errors import TileopsError

_ABSENT = object()
# What a replacement carries, so that a second ``patch`` knows it.
MARK = "_tileops_replacement"


@dataclass(frozen=True)
class Match:
    """What a recogniser found: the operator, its variant, and how sure it is.

    replacement: a function that takes the module first, unless ``attribute`` holds a function; of
                 a config the name of an implementation.
    agreement:   share of equal bits in the fingerprint; 1 where it was compared in float64.
    """

    operator: str
    variant: str
    replacement: Any
    agreement: float
    attribute: str = "forward"


@dataclass(frozen=True)
class Skip:
    """A module that looks like a known one and is left alone."""

    operator: str
    reason: str


class Place(Protocol):
    """What can be replaced in a model and put back."""

    path: str
    is_applied: bool

    def apply(self) -> None:
        """Put the replacement in place."""

    def undo(self) -> None:
        """Put back what was there; TileopsError if somebody replaced it meanwhile."""


class Site:
    """One replaced attribute of one instance; its class stays as it is."""

    def __init__(self, path: str, module: nn.Module, match: Match) -> None:
        self.path = path
        self.module = module
        self.match = match
        is_method = match.attribute == "forward"
        self._new: Any = MethodType(match.replacement, module) if is_method else match.replacement
        setattr(match.replacement, MARK, match)
        self._former: Any = _ABSENT
        self.is_applied = False

    def apply(self) -> None:
        """Put the replacement in place."""
        held = self.module.__dict__
        self._former = held.get(self.match.attribute, _ABSENT)
        held[self.match.attribute] = self._new
        self.is_applied = True

    def undo(self) -> None:
        """Put back what was there; TileopsError if somebody replaced it meanwhile."""
        if not self.is_applied:
            return
        held, name = self.module.__dict__, self.match.attribute
        if held.get(name) is not self._new:
            raise TileopsError(
                f"patch: undo: {self.path or 'the model'}: {name} was replaced after patch; "
                "expected the replacement of tileops. Undo the later change first"
            )
        if self._former is _ABSENT:
            del held[name]
        else:
            held[name] = self._former
        self.is_applied = False


def held_by(module: nn.Module, attribute: str) -> Match | None:
    """The match whose replacement an instance has already; None without one."""
    value = module.__dict__.get(attribute)
    found: Match | None = getattr(getattr(value, "__func__", value), MARK, None)
    return found
