"""Namespaces of ``torch.ops`` that load an operator of tileops when its name is first used."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tileops.ops import FAMILIES, NAMESPACE

_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}


class _Namespace(torch._ops._OpNamespace):
    """A namespace whose missing names may be operators that are not loaded yet."""

    # Graphs find an op by the name of its module, which torch makes of this one.
    __module__ = torch._ops._OpNamespace.__module__

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in _FAMILY_OF:
                raise
        importlib.import_module(f"tileops.ops.{_FAMILY_OF[name]}")
        return self._found(name)

    def _found(self, name: str) -> Any:
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_FAMILY_OF})


class _Users(_Namespace):
    """``torch.ops.tileops``: a name that no program of a user has leads to the operator.

    It is looked up each time, since a program may take the name later.
    """

    __module__ = torch._ops._OpNamespace.__module__

    def _found(self, name: str) -> Any:
        return getattr(getattr(torch.ops, NAMESPACE), name)


def install() -> None:
    """Make both namespaces such ones; they keep what they have."""
    torch.ops.tileops.__class__ = _Users
    getattr(torch.ops, NAMESPACE).__class__ = _Namespace


install()
