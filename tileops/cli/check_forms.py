"""Owns the Python forms that a tile program may not use, as ``python -m tileops check`` sees them.

Only the body of a program counts: a prim_func, a macro, or a function that launches a T.Kernel.
Functions defined inside a program are plain Python unless they are programs themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tileops.cli.check_names import Names

Form = ast.expr | ast.stmt | ast.alias

REFUSED = {
    "Try": "`try`",
    "TryStar": "`try`",
    "Delete": "`del`",
    "Global": "`global`",
    "Nonlocal": "`nonlocal`",
    "AsyncFor": "`async for`",
    "AsyncWith": "`async with`",
    "AsyncFunctionDef": "`async def`",
    "Match": "`match`",
    "ClassDef": "`class`",
    "TypeAlias": "`type`",
    "NamedExpr": "`:=`",
    "Await": "`await`",
    "Yield": "`yield`",
    "YieldFrom": "`yield`",
}
_OPAQUE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COLLECTIONS = (ast.List, ast.Tuple, ast.Dict, ast.Set, *_COMPREHENSIONS)
_SEQUENCES = ("enumerate", "zip", "map", "filter", "reversed", "sorted", "list", "tuple", "set")
_TENSORS = ("Tensor", "StridedTensor")
_GLOBALS = ("empty", "alloc_global")
_IN_PROGRAM = "not possible in a tile program"


def forms(tree: ast.Module, names: Names) -> Iterator[tuple[Form, str, str]]:
    """Each unsupported form in each program of a file: where, what, and why."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and _is_program(node, names):
            yield from _Program(node, names).forms()


def _is_program(function: ast.FunctionDef, names: Names) -> bool:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if names.construct(target) in ("prim_func", "macro"):
            return True
    return any(names.called(node) == "Kernel" for node in _own_nodes(function.body))


def _own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a body, without the bodies of functions, classes and comprehensions in it."""
    stack = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (*_OPAQUE, *_COMPREHENSIONS)):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


class _Program:
    """One program's body."""

    def __init__(self, function: ast.FunctionDef, names: Names) -> None:
        self._names = names
        self._nodes = list(_own_nodes(function.body))
        self._tensors: set[str] = set()
        self._tiles: set[str] = set()
        arguments = function.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self._note_annotation(argument.arg, argument.annotation)
        for node in self._nodes:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._note_annotation(node.target.id, node.annotation)
            elif isinstance(node, ast.Assign):
                self._note_assignment(node)

    def _note_annotation(self, name: str, annotation: ast.expr | None) -> None:
        node = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        if isinstance(node, ast.Call):
            node = node.func
        if node is not None and self._names.construct(node) in _TENSORS:
            self._tensors.add(name)

    def _note_assignment(self, node: ast.Assign) -> None:
        made = self._names.called(node.value) or ""
        for target in node.targets:
            if isinstance(target, ast.Name) and made in _GLOBALS:
                self._tensors.add(target.id)
            elif isinstance(target, ast.Name) and made.startswith("alloc_"):
                self._tiles.add(target.id)

    def forms(self) -> Iterator[tuple[Form, str, str]]:
        """What is not supported in the body."""
        for node in self._nodes:
            kind = type(node).__name__
            if kind in REFUSED and isinstance(node, (ast.expr, ast.stmt)):
                yield node, REFUSED[kind], _IN_PROGRAM
            elif isinstance(node, (ast.For, ast.While)):
                yield from self._loop(node)
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield from self._target(target)
            elif isinstance(node, ast.Subscript):
                yield from self._subscript(node)

    def _loop(self, node: ast.For | ast.While) -> Iterator[tuple[Form, str, str]]:
        if node.orelse:
            yield node.orelse[0], "`else` of a loop", _IN_PROGRAM
        if isinstance(node, ast.While):
            if isinstance(node.test, ast.Constant) and node.test.value:
                yield node.test, "`while True`", "a loop needs a condition that a kernel can check"
            return
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        is_sequence = isinstance(called, ast.Name) and called.id in _SEQUENCES
        is_mapping = isinstance(called, ast.Attribute) and called.attr in ("items", "values")
        if isinstance(node.iter, _COLLECTIONS) or is_sequence or is_mapping:
            yield node.iter, "`for` over a collection", "loops run over range(...) or a loop of T"
        flat = isinstance(node.target, ast.Name) or (
            isinstance(node.target, (ast.Tuple, ast.List))
            and all(isinstance(element, ast.Name) for element in node.target.elts)
        )
        if not flat:
            yield node.target, "a loop variable that is not a name", _IN_PROGRAM

    def _target(self, target: ast.expr) -> Iterator[tuple[Form, str, str]]:
        if isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                yield from self._target(element)
        elif isinstance(target, ast.Starred):
            yield from self._target(target.value)
        elif isinstance(target, ast.Attribute):
            yield target, "assignment to an attribute", _IN_PROGRAM
        elif (
            isinstance(target, ast.Subscript)
            and self._is_buffer(target.value)
            and any(isinstance(index, ast.Slice) for index in _indices(target))
        ):
            yield target, "assignment to a slice", "use T.copy or T.fill"

    def _is_buffer(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._tensors | self._tiles

    def _subscript(self, node: ast.Subscript) -> Iterator[tuple[Form, str, str]]:
        if self._is_buffer(node.value):
            for index in _indices(node):
                if isinstance(index, ast.Slice) and index.step is not None:
                    yield index.step, "a slice with a step", "tiles are contiguous"


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
