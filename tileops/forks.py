"""Owns what a forked child does with locks: the threads that held them do not exist in it."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


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
    for owner in tuple(_owners):
        owner.renew_locks()
