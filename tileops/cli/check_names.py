"""The names of a file: which of them are the tile language's, as its imports say.

Both spellings of the package, ``tileops`` and ``tilelang``, are read as ``tileops``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from types import ModuleType

from tileops import language
from tileops.alias import elsewhere
from tileops.language import unsupported

LANGUAGE = "tileops.language"
_PACKAGES = ("tileops", "tilelang")


class Names:
    """The names that a file binds to the package, the language, or parts of them."""

    def __init__(self, tree: ast.Module) -> None:
        self._paths: dict[str, str] = {}
        self.imports: list[tuple[ast.alias | ast.stmt, str]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._add_import(node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._add_import_from(node, node.module)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._add_assignment(node.targets[0], node.value)

    def path(self, node: ast.expr) -> str | None:
        """The dotted path that an expression names, such as ``tileops.language.gemm``."""
        if isinstance(node, ast.Name):
            return self._paths.get(node.id)
        if isinstance(node, ast.Attribute):
            inner = self.path(node.value)
            return None if inner is None else f"{inner}.{node.attr}"
        return None

    def construct(self, node: ast.expr) -> str | None:
        """The construct of the language that an expression names, such as ``gemm``, or None."""
        path = self.path(node)
        if path is None or not path.startswith(f"{LANGUAGE}."):
            return None
        name = path.removeprefix(f"{LANGUAGE}.")
        return name if "." not in name else None

    def called(self, node: ast.AST) -> str | None:
        """The construct that a call calls, or None."""
        return self.construct(node.func) if isinstance(node, ast.Call) else None

    def _add_import(self, node: ast.Import) -> None:
        for alias in node.names:
            path = _canonical(alias.name)
            if path is None:
                continue
            self.imports.append((alias, path))
            if alias.asname:
                self._paths[alias.asname] = path
            else:
                self._paths[alias.name.split(".")[0]] = "tileops"

    def _add_import_from(self, node: ast.ImportFrom, module: str) -> None:
        home = _canonical(module)
        if home is None:
            return
        for alias in node.names:
            if alias.name == "*":
                self.imports.append((node, home))
                self._add_star(home)
            else:
                self.imports.append((alias, f"{home}.{alias.name}"))
                self._paths[alias.asname or alias.name] = f"{home}.{alias.name}"

    def _add_star(self, home: str) -> None:
        if home == LANGUAGE:
            names = (*language.__all__, *unsupported.all_names())
            self._paths.update((name, f"{home}.{name}") for name in names)

    def _add_assignment(self, target: ast.expr, value: ast.expr) -> None:
        path = self.path(value)
        if path is not None and isinstance(target, ast.Name):
            self._paths.setdefault(target.id, path)


def _canonical(module: str) -> str | None:
    first, _, rest = module.partition(".")
    if first not in _PACKAGES:
        return None
    if first != "tileops":
        rest = elsewhere(rest)
    return f"tileops.{rest}" if rest else "tileops"


def missing_part(path: str) -> str | None:
    """The shortest beginning of a dotted path that tileops does not have; None if it has it all.

    Only modules of tileops are imported, and attributes of classes and functions are not looked at.
    """
    parts = path.split(".")
    found: object = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        if not isinstance(found, ModuleType):
            return None
        name = ".".join(parts[:count])
        if hasattr(found, part):
            found = getattr(found, part)
        elif hasattr(found, "__path__") and importlib.util.find_spec(f"{found.__name__}.{part}"):
            found = importlib.import_module(f"{found.__name__}.{part}")
        else:
            return name
    return None
