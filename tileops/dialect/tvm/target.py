"""``tvm.target.Target``: a target of tileops with the attributes that programs read."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Mapping
from dataclasses import dataclass

from tileops.jit.targets import default_target, requested_target
from tileops.target import Target as OwnTarget

__all__ = ["Target", "determine_target"]

_entered: contextvars.ContextVar[tuple[Target, ...]] = contextvars.ContextVar("_entered")


@dataclass(frozen=True)
class Kind:
    """What a target is: ``cuda``, ``hip`` or ``cpu``."""

    name: str

    def __str__(self) -> str:
        return self.name


def _own(target: str | Mapping[str, str]) -> OwnTarget:
    if isinstance(target, str):
        kind, *options = target.split()
        named = [o.partition("=")[2] for o in options if o.lstrip("-").startswith("arch=")]
        target = f"{kind}:{named[0]}" if named else kind
    return requested_target(target) or default_target()


class Target(contextlib.AbstractContextManager["Target"]):
    """A target by text (``cuda``, ``cuda -arch=sm_90``, ``cuda:sm_90``) or mapping.

    ``cuda`` and ``auto`` take the architecture of the current device. As a context it is
    ``Target.current()``. ArgumentError for what names no target.
    """

    def __init__(self, target: str | Mapping[str, str] | Target = "auto") -> None:
        self.own: OwnTarget = target.own if isinstance(target, Target) else _own(target)

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target that was entered by ``with``; None outside of one."""
        stack = _entered.get(())
        return stack[-1] if stack else None

    @property
    def kind(self) -> Kind:
        """Its kind, with a ``name``."""
        return Kind(self.own.kind)

    @property
    def arch(self) -> str:
        """Its architecture, such as ``sm_90a``."""
        return self.own.arch

    @property
    def attrs(self) -> dict[str, object]:
        """Its architecture and the size of a warp, by name."""
        return {"arch": self.own.arch, "thread_warp_size": self.own.warp_size}

    def __enter__(self) -> Target:
        _entered.set((*_entered.get(()), self))
        return self

    def __exit__(self, *error: object) -> None:
        _entered.set(_entered.get(())[:-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.own == other.own

    def __hash__(self) -> int:
        return hash(self.own)

    def __str__(self) -> str:
        return str(self.own)

    __repr__ = __str__


def determine_target(
    target: str | Mapping[str, str] | Target = "auto", return_object: bool = False
) -> str | Target:
    """A target by text or mapping, ``auto`` for the current device: its text, or a ``Target``."""
    found = Target(target)
    return found if return_object else str(found)
