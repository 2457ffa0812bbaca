"""Digests of Python functions by their syntax: lines, comments and docstrings do not count."""

from __future__ import annotations

import ast
import copy
import hashlib


def digest_of_text(text: str) -> str:
    """The SHA-256 of a text, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(node: object) -> str:
    """The text of a syntax tree: the same under each Python, without places and docstrings."""
    match node:
        case ast.AST():
            fields = (f"{n}={canonical(v)}" for n, v in _fields(node) if v not in (None, []))
            return f"{type(node).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(canonical, node))}]"
        case _:
            return repr(node)


def _fields(node: ast.AST) -> list[tuple[str, object]]:
    found = [(n, getattr(node, n, None)) for n in node._fields if n not in ("kind", "type_comment")]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        found = [(n, _code_of(node) if n == "body" else v) for n, v in found]
    return found


def _code_of(node: ast.FunctionDef | ast.ClassDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def unparsed(tree: ast.AST) -> str:
    """The tree as Python, without comments and docstrings."""
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.body = _code_of(node) or [ast.Pass()]
    return ast.unparse(tree)


def names_read(tree: ast.AST) -> list[tuple[str, ...]]:
    """The names from outside that a function reads, with the attributes that follow: ``a.b``."""
    found: set[tuple[str, ...]] = set()
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    inner: set[int] = set()
    for node in ast.walk(tree):  # outer nodes first
        if id(node) in inner:
            continue
        chain: list[str] = []
        at = node
        while isinstance(at, ast.Attribute):
            chain.append(at.attr)
            at = at.value
            inner.add(id(at))
        if isinstance(at, ast.Name) and at.id not in own:
            found.add((at.id, *reversed(chain)))
    return sorted(found)
