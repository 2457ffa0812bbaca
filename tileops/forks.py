"""Owns what a forked child does with locks: the threads that held them do not exist in it."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from importlib import _bootstrap
from typing import Any, Protocol

# What a first call imports.
_IMPORTED_LATE = frozenset({"tileops", "filelock", "triton"})
# The import system's own table of the modules that some thread is importing, by name.
_module_locks: dict[str, Callable[[], Any]] = getattr(_bootstrap, "_module_locks", {})


class Renewed(Protocol):
    """Something with locks that are held while a program compiles or is measured."""

    def renew_locks(self) -> None:
        """Replace the locks by free ones; whoever is inside one leaves the former."""


_owners: weakref.WeakSet[Renewed] = weakref.WeakSet()
_hooked: list[bool] = []


def renew_in_child(owner: Renewed) -> None:
    """Renew the locks of ``owner`` in every child that this process forks, while it lives."""
    if not _hooked:
        _hooked.append(True)
        os.register_at_fork(after_in_child=_renew)
    _owners.add(owner)


def _renew() -> None:
    _forget_unfinished_imports()
    for owner in tuple(_owners):
        owner.renew_locks()


def _forget_unfinished_imports() -> None:
    """Let the child import anew what a thread was importing for a first call.

    CPython renews its import system's one lock in a child, and not the locks of the modules: a
    thread that is gone would hold those for ever. To wait for it before the fork is no way out:
    filelock's import waits for the fork itself.
    """
    own = threading.get_ident()
    held = {}
    for name, reference in tuple(_module_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner not in (None, own):
            held[name] = owner
    gone = {owner for name, owner in held.items() if name.partition(".")[0] in _IMPORTED_LATE}
    for name, owner in held.items():
        if owner in gone:
            _module_locks.pop(name, None)
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]
