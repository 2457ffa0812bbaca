"""The names of a file that are the tile language's, and the forms that a program may not use.

Both spellings of the package, ``tileops`` and ``tilelang``, are read as ``tileops``, and ``tvm`` as
its stand-in, ``TVM``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from types import ModuleType

from tileops import language
from tileops.alias import elsewhere
from tileops.frontend.rewrite import REFUSED
from tileops.language import missing

LANGUAGE = "tileops.language"
TVM = "tileops.dialect.tvm"
_PACKAGES = ("tileops", "tilelang")

Form = ast.expr | ast.stmt | ast.alias
Found = Iterator[tuple[Form, str, str]]

_OPAQUE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COLLECTIONS = (ast.List, ast.Tuple, ast.Dict, ast.Set, *_COMPREHENSIONS)
_SEQUENCES = ("enumerate", "zip", "map", "filter", "reversed", "sorted", "list", "tuple", "set")
_TENSORS = ("Tensor", "StridedTensor")
_IN_PROGRAM = "not possible in a tile program"


class Names:
    """The names that a file binds to the package, the language, or parts of them."""

    def __init__(self, tree: ast.Module) -> None:
        self._paths: dict[str, str] = {}
        self.imports: list[tuple[ast.alias | ast.stmt, str]] = []  # of TVM, too
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=aliases):
                    for alias in aliases:
                        if path := _canonical(alias.name):
                            self.imports.append((alias, path))
                            first = alias.name.split(".")[0]
                            whole = _canonical(first) or "tileops"
                            self._paths[alias.asname or first] = path if alias.asname else whole
                case ast.ImportFrom(module=str(module), level=0) if home := _canonical(module):
                    self._add_from(node, home)
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    if path := self.path(value):
                        self._paths.setdefault(name, path)

    def _add_from(self, node: ast.ImportFrom, home: str) -> None:
        for alias in node.names:
            if alias.name != "*":
                self.imports.append((alias, f"{home}.{alias.name}"))
                self._paths[alias.asname or alias.name] = f"{home}.{alias.name}"
                continue
            self.imports.append((node, home))
            if home == LANGUAGE:
                names = (*language.__all__, *missing.all_names())
                self._paths.update((name, f"{home}.{name}") for name in names)

    def path(self, node: ast.expr) -> str | None:
        """The dotted path that an expression names, such as ``tileops.language.gemm``."""
        match node:
            case ast.Name(id=name):
                return self._paths.get(name)
            case ast.Attribute(value=value, attr=attr) if inner := self.path(value):
                return f"{inner}.{attr}"
        return None

    def construct(self, node: ast.expr) -> str | None:
        """The construct of the language that an expression names, such as ``gemm``, or None."""
        home, _, name = (self.path(node) or "").rpartition(".")
        return name if home == LANGUAGE else None

    def called(self, node: ast.AST) -> str | None:
        """The construct that a call calls, or None."""
        return self.construct(node.func) if isinstance(node, ast.Call) else None


def _canonical(module: str) -> str | None:
    first, _, rest = module.partition(".")
    if first == "tvm":
        return f"tileops.{elsewhere(module)}"
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


# -- forms -----------------------------------------------------------------------------------------
def forms(tree: ast.Module, names: Names) -> Found:
    """Each unsupported form in each program of a file: where, what, and why.

    Only the body of a program counts: a prim_func, a macro, or a function that launches a T.Kernel.
    Functions defined inside a program are plain Python unless they are programs themselves.
    """
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
        case ast.expr() | ast.stmt() if kind in REFUSED:
            yield node, REFUSED[kind], _IN_PROGRAM
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
