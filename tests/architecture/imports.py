"""The import statements in the source of the package, lazy ones included."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tileops"


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target`` at ``line``; ``lazy`` if inside a function.

    ``typing_only``: under ``if TYPE_CHECKING``, so never executed.
    """

    module: str
    target: str
    line: int
    lazy: bool
    typing_only: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports_of(path: Path) -> list[Import]:
    """All imports of one file. ``from a import b`` names ``a.b`` where that is a module."""
    found: list[Import] = []
    _visit(ast.parse(path.read_text()), module_name(path), path, False, False, found)
    return found


@functools.cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for path in package_files() for found in imports_of(path))


def _visit(
    node: ast.AST, module: str, path: Path, lazy: bool, typing_only: bool, out: list[Import]
) -> None:
    for child in ast.iter_child_nodes(node):
        inner_lazy = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        inner_typing = typing_only or _is_typing_block(child)
        match child:
            case ast.Import(names=names):
                for name in names:
                    out.append(Import(module, name.name, child.lineno, lazy, typing_only))
            case ast.ImportFrom():
                for target in _targets(child, path):
                    out.append(Import(module, target, child.lineno, lazy, typing_only))
            case ast.Call() if _is_import_call(child):
                out.append(
                    Import(module, child.args[0].value, child.lineno, lazy, typing_only)  # type: ignore[attr-defined]
                )
        _visit(child, module, path, inner_lazy, inner_typing, out)


def _is_typing_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _is_import_call(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return (
        name in ("import_module", "__import__")
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    )


def _targets(node: ast.ImportFrom, path: Path) -> list[str]:
    base = node.module or ""
    if node.level:
        package = module_name(path).split(".")
        if path.name != "__init__.py":
            package = package[:-1]
        package = package[: len(package) - node.level + 1]
        base = ".".join([*package, base] if base else package)
    return [_narrowed(base, name.name) for name in node.names]


def _narrowed(base: str, name: str) -> str:
    full = f"{base}.{name}"
    if not full.startswith("tileops."):
        return base
    file = ROOT / Path(*full.split("."))
    return full if file.is_dir() or file.with_suffix(".py").exists() else base
