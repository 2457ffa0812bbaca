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

# Modules that have another place here, with all that is below them. None: a folder that only leads
# to others.
_ELSEWHERE: dict[str, str | None] = {
    "carver": None,
    "carver.arch": "arch",
    "carver.roller": None,
    "carver.roller.hint": "dialect.templates",
    "carver.roller.rasterization": "dialect.rasterization",
    "carver.template": "dialect.templates",
    "contrib": None,
    "contrib.nvcc": "dialect.nvcc",
    "backend": None,
    "backend.target": "dialect.tvm.target",
    "cuda": "dialect.cuda",
    **dict.fromkeys(
        (
            "cuda.intrinsics",
            "cuda.intrinsics.layout",
            "cuda.intrinsics.layout.mma_layout",
            "cuda.intrinsics.layout.utils",
            "cuda.intrinsics.macro",
            "cuda.intrinsics.macro.mma_macro_generator",
            "intrinsics",
            "intrinsics.mma_layout",
            "intrinsics.mma_macro_generator",
        ),
        "dialect.mma",
    ),
    **dict.fromkeys(
        ("engine", "engine.callback", "engine.lower", "engine.param"), "dialect.lowering"
    ),
    "env": "dialect.environment",
    "language.dtypes": "dialect.dtypes",
    "tileop": None,
    "tileop.base": "language",
    "tools": "dialect.tools",
    "tools.cuda": None,
    "tools.cuda.iket": "dialect.iket",
    "tvm": "dialect.tvm",
    "tvm.testing": "testing",
    "utils": None,
    "utils.device": "devices",
    "utils.target": "dialect.tvm.target",
    "utils.tensor": "testing",
}
# Packages that programs of an alias import beside it; used where no real one can be imported.
_COMPANIONS = {"tilelang": ("tvm",)}


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


class _Companion(MetaPathFinder):
    """Finds a package that goes with an alias, after everybody else has failed to."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_loaded(self) -> bool:
        """True if the package was imported, and from here."""
        module = sys.modules.get(self.name)
        return module is not None and module.__name__ == f"{_PACKAGE}.{elsewhere(self.name)}"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where the package comes from; None for all others."""
        return _spec_of(fullname, elsewhere(fullname)) if fullname == self.name else None


def _spec_of(fullname: str, place: str) -> ModuleSpec | None:
    """The module of tileops at ``place`` under another name; None where there is none."""
    real = f"{_PACKAGE}.{place}" if place else _PACKAGE
    try:
        found = importlib.util.find_spec(real)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return None
    is_package = found.submodule_search_locations is not None
    return ModuleSpec(fullname, _SameModule(real), origin=found.origin, is_package=is_package)


class Alias(AbstractContextManager["Alias"], MetaPathFinder):
    """An installed alias. ``undo()``, or leaving a ``with`` block on it, removes the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._companions = [_Companion(package) for package in _COMPANIONS.get(name, ())]

    def install(self) -> None:
        """Put the alias before, and what goes with it after, all that finds modules."""
        sys.meta_path.insert(0, self)
        sys.meta_path.extend(self._companions)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the alias comes from; None for other modules and those not there."""
        first, _, rest = fullname.partition(".")
        if rest and any(c.name == first and c.is_loaded() for c in self._companions):
            return _spec_of(fullname, elsewhere(fullname))
        if first != self.name:
            return None
        if rest in _ELSEWHERE and _ELSEWHERE[rest] is None:
            return ModuleSpec(fullname, None, is_package=True)
        return _spec_of(fullname, elsewhere(rest))

    def undo(self) -> None:
        """Remove the name: later imports of it find what is installed. May be called again."""
        with forks.guard:
            if _installed.get(self.name) is self:
                del _installed[self.name]
                finders: list[Alias | _Companion] = [self, *self._companions]
                for finder in finders:
                    sys.meta_path.remove(finder)
                    for module in _loaded(finder.name):
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
        alias.install()
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
