"""``install_alias``: another package's name, such as ``tilelang``, resolves to tileops.

For programs that cannot be edited. Nothing is copied: ``tilelang.language`` and
``tileops.language`` are then one module, so that values of the two mix.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tileops import forks
from tileops.errors import ArgumentError, TileopsError

_PACKAGE = "tileops"

# Modules that have another place here. None: a folder that only leads to others.
_ELSEWHERE: dict[str, str | None] = {
    "carver": None,
    "carver.arch": "arch",
    "tileop": None,
    "tileop.base": "language",
    "utils": None,
    "utils.tensor": "testing",
}


class _SameModule(Loader):
    """Gives the module of tileops itself, unchanged, under the other name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of tileops."""
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs again. The import system has put the other name's spec in; take it out."""
        module.__spec__ = self._spec


class Alias(AbstractContextManager["Alias"], MetaPathFinder):
    """An installed alias. ``undo()``, or leaving a ``with`` block on it, removes the name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the alias comes from; None for other modules and those not there."""
        first, _, rest = fullname.partition(".")
        if first != self.name:
            return None
        place = _ELSEWHERE.get(rest, rest)
        if place is None:
            return ModuleSpec(fullname, None, is_package=True)
        real = f"{_PACKAGE}.{place}" if place else _PACKAGE
        try:
            found = importlib.util.find_spec(real)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _SameModule(real), origin=found.origin, is_package=is_package)

    def undo(self) -> None:
        """Remove the name: later imports of it find what is installed. May be called again."""
        with forks.guard:
            if _installed.get(self.name) is self:
                del _installed[self.name]
                sys.meta_path.remove(self)
                for module in _loaded(self.name):
                    del sys.modules[module]

    def __exit__(self, *error: object) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<alias {self.name} of {_PACKAGE}>"


_installed: dict[str, Alias] = {}


def install_alias(name: str = "tilelang") -> Alias:
    """Make ``import <name>``, and its submodules that tileops has, resolve to tileops.

    Only modules that exist here are found: importing another one is Python's ModuleNotFoundError.
    A second call gives the same handle. ArgumentError for a text that cannot be a package's name,
    TileopsError if a package of that name was imported already.
    """
    if not name.isidentifier() or name == _PACKAGE:
        raise ArgumentError(f"install_alias({name!r}): expected another package's name")
    with forks.guard:
        if name in _installed:
            return _installed[name]
        others = _loaded(name)
        if others:
            raise TileopsError(
                f"install_alias({name!r}): {others[0]} is already imported from "
                f"{getattr(sys.modules[others[0]], '__file__', None) or 'elsewhere'}; install the "
                "alias before anything imports it"
            )
        alias = Alias(name)
        _installed[name] = alias
        sys.meta_path.insert(0, alias)
        return alias


def elsewhere(module: str) -> str:
    """The place here of a module of the other package; ``module`` itself unless it has moved.

    Both are dotted paths below the package; what is below a moved module moves with it.
    """
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        place = _ELSEWHERE.get(".".join(parts[:count]))
        if place is not None:
            return ".".join((place, *parts[count:]))
    return module


def _loaded(name: str) -> list[str]:
    return sorted(m for m in list(sys.modules) if m == name or m.startswith(f"{name}."))
