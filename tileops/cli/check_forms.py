"""The Python forms that a tile program may not use, found without a trace.

Only the body of a program counts: a prim_func, a macro, or a function that launches a T.Kernel.
Functions defined inside a program are plain Python unless they are programs themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tileops.cli.check_names import Names
from tileops.frontend import expressions, rewrite

Form = ast.expr | ast.stmt | ast.alias
Found = Iterator[tuple[Form, str, str]]

_REFUSED = {**rewrite.REFUSED, **expressions.REFUSED}
_OPAQUE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COLLECTIONS = (ast.List, ast.Tuple, ast.Dict, ast.Set, *_COMPREHENSIONS)
_SEQUENCES = ("enumerate", "zip", "map", "filter", "reversed", "sorted", "list", "tuple", "set")
_TENSORS = ("Tensor", "StridedTensor")
_IN_PROGRAM = "not possible in a tile program"


def forms(tree: ast.Module, names: Names) -> Found:
    """Each unsupported form in each program of a file: where, what, and why."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            nodes = list(_own_nodes(function.body))
            if _is_program(function, nodes, names):
                buffers = _buffers(function, nodes, names)
                for node in nodes:
                    yield from _form(node, buffers)


def _own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a body, without the bodies of functions, classes and comprehensions in it."""
    stack = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (*_OPAQUE, *_COMPREHENSIONS)):
            stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _is_program(function: ast.FunctionDef, nodes: list[ast.AST], names: Names) -> bool:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if names.construct(target) in ("prim_func", "macro"):
            return True
    return any(names.called(node) == "Kernel" for node in nodes)


def _buffers(function: ast.FunctionDef, nodes: list[ast.AST], names: Names) -> set[str]:
    """The names of tensors and tiles, from their annotations and what makes them."""
    found = set()
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if _is_tensor(argument.annotation, names):
            found.add(argument.arg)
    for node in nodes:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if _is_tensor(annotation, names):
                    found.add(name)
            case ast.Assign(targets=targets, value=value):
                made = names.called(value) or ""
                if made == "empty" or made.startswith("alloc_"):
                    found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found


def _is_tensor(annotation: ast.expr | None, names: Names) -> bool:
    node = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if isinstance(node, ast.Call):
        node = node.func
    return node is not None and names.construct(node) in _TENSORS


def _form(node: ast.AST, buffers: set[str]) -> Found:
    """What is not supported about one node of a program."""
    kind = type(node).__name__
    match node:
        case ast.expr() | ast.stmt() if kind in _REFUSED:
            yield node, _REFUSED[kind], _IN_PROGRAM
        case ast.For() | ast.While():
            yield from _loop(node)
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _target(target, buffers)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            yield from _target(target, buffers)
        case ast.Subscript(value=ast.Name(id=name)) if name in buffers:
            for index in _indices(node):
                if isinstance(index, ast.Slice) and index.step is not None:
                    yield index.step, "a slice with a step", "tiles are contiguous"


def _loop(node: ast.For | ast.While) -> Found:
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
    is_tuple = isinstance(node.target, (ast.Tuple, ast.List))
    targets = node.target.elts if is_tuple else [node.target]  # type: ignore[attr-defined]
    if not all(isinstance(target, ast.Name) for target in targets):
        yield node.target, "a loop variable that is not a name", _IN_PROGRAM


def _target(target: ast.expr, buffers: set[str]) -> Found:
    match target:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                yield from _target(element, buffers)
        case ast.Starred(value=value):
            yield from _target(value, buffers)
        case ast.Attribute():
            yield target, "assignment to an attribute", _IN_PROGRAM
        case ast.Subscript(value=ast.Name(id=name)) if name in buffers:
            if any(isinstance(index, ast.Slice) for index in _indices(target)):
                yield target, "assignment to a slice", "use T.copy or T.fill"


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
