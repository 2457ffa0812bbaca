"""Owns the names that Python changes inside a class: ``__n`` there means ``_Class__n``."""

from __future__ import annotations

import ast
from types import FunctionType

# The fields that hold one identifier which Python's compiler changes.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Name: ("id",),
    ast.Attribute: ("attr",),
    ast.arg: ("arg",),
    ast.keyword: ("arg",),
    ast.FunctionDef: ("name",),
    ast.AsyncFunctionDef: ("name",),
    ast.ClassDef: ("name",),
    ast.ExceptHandler: ("name",),
    ast.alias: ("name", "asname"),
    ast.MatchAs: ("name",),
    ast.MatchStar: ("name",),
    ast.MatchMapping: ("rest",),
}


def class_around(func: FunctionType) -> str | None:
    """The name of the innermost class whose body ``func`` stands in, None for none."""
    # Python 3.11 keeps what the source says; a decorator may have set __qualname__.
    parts = getattr(func.__code__, "co_qualname", func.__qualname__).split(".")
    for outer, inner in zip(reversed(parts[:-1]), reversed(parts[1:]), strict=True):
        if "<locals>" not in (outer, inner):
            return str(outer)
    return None


def mangle(function: ast.FunctionDef, class_name: str) -> None:
    """Give all of ``function`` but its own name the names that it has inside ``class_name``.

    Its text is compiled again outside the class, where Python leaves them as they are written.
    """
    prefix = class_name.lstrip("_")
    if not prefix:
        return
    pending: list[ast.AST] = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        for field in _FIELDS.get(type(node), ()):
            name = getattr(node, field)
            if name is not None:
                setattr(node, field, _mangled(name, prefix))
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [_mangled(name, prefix) for name in node.names]
        # The body of a class inside is that class's.
        inside = (
            [*node.bases, *node.keywords, *node.decorator_list]
            if isinstance(node, ast.ClassDef)
            else ast.iter_child_nodes(node)
        )
        pending += inside


def _mangled(name: str, prefix: str) -> str:
    is_private = name.startswith("__") and not name.endswith("__") and "." not in name
    return f"_{prefix}{name}" if is_private else name
