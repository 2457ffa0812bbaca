"""``torch.ops.tileops``, which loads an operator of tileops when its name is first used."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tileops.ops import FAMILIES

_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}


class Namespace(torch._ops._OpNamespace):
    """A namespace of ops whose missing names may be operators that are not loaded yet."""

    # Graphs find an op by the name of its module, which torch makes of this one.
    __module__ = torch._ops._OpNamespace.__module__

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in _FAMILY_OF:
                raise
        importlib.import_module(f"tileops.ops.{_FAMILY_OF[name]}")
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_FAMILY_OF})


def install() -> None:
    """Make ``torch.ops.tileops`` such a namespace; it keeps what it has."""
    torch.ops.tileops.__class__ = Namespace


install()
