"""The names of a function's tree: where they are assigned and read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


# Fields without nodes that have a place: text, and marks such as ``Load`` and ``Add``.
_FLAT = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "type_comment", "kind"})


class _DeepFields(dict[type[ast.AST], tuple[str, ...]]):
    """The other fields of each class of nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        fields = () if kind is ast.Constant else tuple(f for f in kind._fields if f not in _FLAT)
        return self.setdefault(kind, fields)


_deep_fields = _DeepFields()


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below ``node`` in source order, without marks such as ``Load``.

    It takes a third of the time of ``ast.iter_child_nodes``, a part of every warm start.
    """
    found: list[ast.AST] = []
    for name in _deep_fields[type(node)]:
        value = getattr(node, name, None)
        if type(value) is list:
            for item in value:
                if isinstance(item, ast.AST):
                    found.append(item)
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes below ``nodes`` that belong to the function itself, in source order.

    Nested functions, classes and lambdas are given but not entered.
    """
    pending = [*nodes][::-1]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _NESTED):
            pending += child_nodes(node)[::-1]


def target_names(target: ast.AST) -> list[str]:
    """The names that an assignment target binds, left to right."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, (ast.Tuple, ast.List)):
        return [name for element in target.elts for name in target_names(element)]
    if isinstance(target, ast.Starred):
        return target_names(target.value)
    return []


def assigned_names(body: Sequence[ast.stmt]) -> list[str]:
    """The names that assignments in ``body`` bind, without repeats and loop variables."""
    out: dict[str, None] = {}
    for node in own_nodes(body):
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None:
            targets = [node.target]
        else:
            continue
        for target in targets:
            out.update(dict.fromkeys(target_names(target)))
    return list(out)


def region_names(body: Sequence[ast.stmt]) -> set[str]:
    """The names that are assigned somewhere inside a loop or an ``if``."""
    out: set[str] = set()
    pending: list[ast.AST] = [*body]
    while pending:
        # The outermost of each nest: its names include those of the regions inside.
        node = pending.pop()
        if isinstance(node, (ast.For, ast.While)):
            out.update(assigned_names(node.body))
            pending += node.orelse
        elif isinstance(node, ast.If):
            out.update(assigned_names([*node.body, *node.orelse]))
        elif not isinstance(node, (*_NESTED, ast.expr)):
            pending += child_nodes(node)
    return out


def carried_names(body: Sequence[ast.stmt]) -> set[str]:
    """The names that a loop's body reads before it assigns them, so carried between iterations."""
    read, assigned, carried = set[str](), set[str](), set[str]()
    for event, name in _events(body):
        if event == "load":
            read.add(name)
        else:
            if name in read and name not in assigned:
                carried.add(name)
            assigned.add(name)
    return carried


def _events(body: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Reads and assignments in the order of execution."""
    for node in body:
        if isinstance(node, ast.Assign):
            yield from _events([node.value])
            for target in node.targets:
                yield from (("store", n) for n in target_names(target))
                yield from _events([target])
        elif isinstance(node, ast.AugAssign):
            if isinstance(node.target, ast.Name):
                yield "load", node.target.id
            yield from _events([node.value])
            yield from (("store", n) for n in target_names(node.target))
        elif isinstance(node, ast.AnnAssign):
            yield from _events([x for x in (node.annotation, node.value) if x is not None])
            if node.value is not None:
                yield from (("store", n) for n in target_names(node.target))
        elif isinstance(node, ast.For):
            yield from _events([node.iter])
            yield from (("store", n) for n in target_names(node.target))
            yield from _events([*node.body, *node.orelse])
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                yield "load", node.id
        elif not isinstance(node, (*_NESTED, *_COMPREHENSIONS)):
            yield from _events(child_nodes(node))
