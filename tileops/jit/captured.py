"""Texts of functions and of what they use: what makes two programs, or two rules, one.

Two processes on two machines get the same text of one program: it holds no address, no file, no
place in a file and no order of a set.
"""

from __future__ import annotations

import ast
import enum
import functools
import hashlib
import itertools
import logging
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tileops.dtypes import DType
from tileops.errors import ProgramError
from tileops.frontend import PrimFunc
from tileops.frontend.source import function_tree
from tileops.ir.printer import print_program
from tileops.location import Location

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
# What these define is known by its name; their versions are another matter.
_KNOWN = frozenset(("torch", "tileops", "numpy", "triton", "builtins")) | sys.stdlib_module_names
# What Python keeps in a class beside what its author wrote.
_OF_PYTHON = frozenset(
    (
        "__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__",
        "__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__",
        "__annotations_cache__", "__match_args__", "__abstractmethods__", "_abc_impl",
        "__parameters__", "__orig_bases__", "__conditional_annotations__",
    )
)  # fmt: skip


def source_of(func: FunctionType) -> str:
    """The syntax tree of a function without places; its instructions if it has no source."""
    tree = _tree_of(func)
    return "".join(_code(func.__code__) if tree is None else _parts(tree))


def values_of(func: FunctionType, bound: object) -> str:
    """What a function takes from around it, and ``bound``: defaults, variables, other functions."""
    described = _Described()
    described.around(func)
    described.value(bound)
    return "\n".join(described.lines)


def text_of(value: object) -> str:
    """The text of one value."""
    return _text([value], is_whole=True)


def code_digest(*values: object) -> str:
    """A digest of functions by their instructions, and of what they use as far as it is plain.

    Objects, classes and tensors count by their names and types: a traced region has no data.
    """
    text = _text(values, is_whole=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def identity(value: object) -> str:
    """Module, name and, of Python functions, 12 digits of what they do and captured.

    Steady while the function works: what it calls by a global name is not followed, and what a list
    or dict holds does not count.
    """
    named: Any = value if hasattr(value, "__qualname__") else type(value)
    name = f"{named.__module__}.{named.__qualname__}"
    if not isinstance(value, (FunctionType, MethodType, functools.partial)):
        return name
    text = _text([value], is_whole=False, is_steady=True)
    return f"{name}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _text(values: Iterable[object], is_whole: bool, is_steady: bool = False) -> str:
    described = _Described(is_whole, is_steady)
    for value in values:
        described.value(value)
    return "\n".join(described.lines)


class _Described:
    """Collects lines; an object that was described before is named by its number."""

    def __init__(self, is_whole: bool = True, is_steady: bool = False) -> None:
        self._is_whole = is_whole  # False: as code_digest says
        self._is_steady = is_steady  # as identity says
        self.lines: list[str] = []
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # an id is of one object only while that lives
        self._inside: list[int] = []  # containers that are being described

    def _is_new(self, value: object) -> bool:
        if id(value) in self._seen:
            self.lines.append(f"again {self._seen[id(value)]}")
            return False
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return True

    # -- functions -------------------------------------------------------------------------------
    def function(self, func: FunctionType) -> None:
        """The code of a function and what it uses."""
        if _is_known(func.__module__):
            self.lines.append(f"function {func.__module__}.{func.__qualname__}")
        elif self._is_new(func):
            source = source_of(func) if self._is_whole else "".join(_code(func.__code__))
            self.lines.append(f"function {source}")
            self.around(func)

    def around(self, func: FunctionType) -> None:
        """Defaults, annotations and the variables of other scopes."""
        self.value(func.__defaults__)
        self.value(self._given(func.__kwdefaults__))
        try:
            annotations = sorted(func.__annotations__.items())
        except NameError:  # evaluated when asked for, from Python 3.14 on
            annotations = []
        for name, annotation in annotations:
            self.lines.append(f"annotation {name}")
            self.value(annotation)
        cells = dict(zip(func.__code__.co_freevars, func.__closure__ or (), strict=True))
        for path in sorted(_paths(func, _tree_of(func) if self._is_whole else None)):
            root = path[0]
            if root in cells:
                try:
                    self._used(path, cells[root].cell_contents)
                except ValueError:  # not filled yet
                    self.lines.append(f"{root} empty")
            elif root in func.__globals__ and not self._is_steady:
                self._used(path, func.__globals__[root])

    def _given(self, named: dict[str, Any] | None) -> object:
        """Arguments by name, which count although a dict holds them."""
        return tuple(sorted(named.items())) if named and self._is_steady else named

    def _used(self, path: tuple[str, ...], value: object) -> None:
        """The value of ``a.b.c``, as far as the names lead through modules and classes."""
        self.lines.append(f"name {'.'.join(path)}")
        for name in path[1:]:
            is_own_class = isinstance(value, type) and not _is_known(value.__module__)
            if not is_own_class and not _is_own_module(value):
                break
            value = getattr(value, name, None)
        self.value(value)

    # -- values ----------------------------------------------------------------------------------
    def value(self, value: object) -> None:
        """Any value."""
        match value:
            case _ if type(value) in _PLAIN:
                self.lines.append(f"{type(value).__name__} {value!r}")
            case enum.Enum():
                self.lines.append(f"{_name_of(type(value))}.{value.name}")
                self.value(value.value)
            case FunctionType():
                self.function(value)
            case MethodType():
                self.value(value.__func__)
                if self._is_whole:
                    self.value(value.__self__)
            case ModuleType() | Location() | logging.Logger():
                self.lines.append(type(value).__name__)
            case type():
                self._class(value)
            case PrimFunc():
                self.lines.append(f"prim_func {print_program(value.program)}")
            case _:
                self._composed(value)

    def _composed(self, value: object) -> None:
        name = _name_of(type(value))
        match value:
            case functools.partial():
                self._members(value, name, (value.func, value.args, self._given(value.keywords)))
            case list() | dict() | set() if self._is_steady:
                self.lines.append(name)
            case set() | frozenset():
                items = sorted(_text([item], self._is_whole) for item in value)
                self._members(value, name, items)
            case Mapping():
                self._members(value, name, [part for item in value.items() for part in item])
            case tuple() | list():
                self._members(value, name, value)
            case DType():
                self.lines.append(f"{name} {value}")
            case _ if (inner := _wrapped(value, self._is_whole)) is not None:
                self.lines.append(name)
                self.function(inner)
            case _:
                self._object(name, value)

    def _members(self, value: object, name: str, members: Iterable[object]) -> None:
        # By content and not by identity: whether equal tuples are one object says nothing.
        if id(value) in self._inside:
            self.lines.append(f"inside {len(self._inside) - self._inside.index(id(value))}")
            return
        self._inside.append(id(value))
        found = list(members)
        self.lines.append(f"{name} of {len(found)}")
        for member in found:
            self.value(member)
        self._inside.pop()

    def _class(self, cls: type) -> None:
        if _is_known(cls.__module__) or not self._is_whole:
            self.lines.append(f"class {cls.__module__}.{cls.__qualname__}")
        elif self._is_new(cls):
            self.lines.append(f"class {cls.__name__}")
            for parent in cls.__bases__:
                self._class(parent)
            for name in sorted(set(vars(cls)) - _OF_PYTHON):
                self.lines.append(f"member {name}")
                self._member(vars(cls)[name])

    def _member(self, member: object) -> None:
        match member:
            case staticmethod() | classmethod():
                self.value(member.__func__)
            case property():
                for part in (member.fget, member.fset, member.fdel):
                    self.value(part)
            case functools.cached_property():
                self.value(member.func)
            case types.MemberDescriptorType() | types.GetSetDescriptorType():
                self.lines.append("slot")
            case _:
                self.value(member)

    def _object(self, name: str, value: object) -> None:
        if not self._is_new(value):
            return
        self.lines.append(name)
        if isinstance(value, _PLAIN):  # of a class that extends int, str, ...
            base: Any = next(cls for cls in type(value).__mro__ if cls in _PLAIN)
            self.lines.append(base.__repr__(value))
        if not self._is_whole:
            self.lines.append(_short_text(value))
            return
        data, state = _bytes_of(value), _state(value)
        if data is not None:
            self.lines.append(data)
            return
        if not _is_known(type(value).__module__):
            self._class(type(value))
        elif not state:
            text = repr(value)
            self.lines.append("" if " at 0x" in text else text)
        for attribute, part in sorted(state.items()):
            self.lines.append(f"attribute {attribute}")
            self.value(part)


def _is_known(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _KNOWN


def _is_own_module(value: object) -> bool:
    return isinstance(value, ModuleType) and not _is_known(value.__name__)


def _name_of(cls: type) -> str:
    # The module of one's own class may be moved.
    return f"{cls.__module__}.{cls.__qualname__}" if _is_known(cls.__module__) else cls.__name__


def _short_text(value: Any) -> str:  # noqa: ANN401
    """What a value of torch or Python is called, as far as that tells it from others."""
    if isinstance(value, types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    kind = type(value)
    return str(value) if kind.__module__ == "torch._ops" or kind.__qualname__ == "dtype" else ""


def _wrapped(value: object, is_whole: bool) -> FunctionType | None:
    """The function of a macro, a program or another wrapper."""
    if is_whole and not _is_known(type(value).__module__):
        return None  # it may hold more than the function
    for name in ("func", "__wrapped__"):
        found = getattr(value, "__dict__", {}).get(name)
        if isinstance(found, FunctionType):
            return found
    return None


def _state(value: object) -> dict[str, object]:
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name) and not name.startswith("__"):
                found[name] = getattr(value, name)
        for name, member in vars(cls).items():
            if isinstance(member, functools.cached_property):
                found.pop(name, None)  # there or not, as it was asked for
    return found


def _bytes_of(value: object) -> str | None:
    """Dtype, shape and content of an array or tensor; None for anything else."""
    from tileops.optional_torch import torch

    array: Any = value
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous().reshape(-1)
        content = bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""
    elif type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        content = array.tobytes()
    else:
        return None
    shape = tuple(array.shape)
    return f"{array.dtype} {shape} {hashlib.sha256(content).hexdigest()}"


# -- code ------------------------------------------------------------------------------------------
def _tree_of(func: FunctionType) -> ast.FunctionDef | None:
    """The function without its decorators, whose arguments are options; None without source."""
    try:
        tree = function_tree(func)
    except ProgramError:
        return None
    fields = {**dict(ast.iter_fields(tree)), "decorator_list": []}
    return ast.FunctionDef(**fields, lineno=tree.lineno, col_offset=tree.col_offset)


def _parts(node: object) -> Iterator[str]:
    # Without empty fields: versions of Python differ in which there are.
    match node:
        case ast.AST():
            yield f"{type(node).__name__}("
            for name, part in ast.iter_fields(node):
                if part is not None and part != []:
                    yield f"{name}="
                    yield from _parts(part)
            yield ")"
        case list():
            yield "["
            for part in node:
                yield from _parts(part)
                yield ","
            yield "]"
        case _:
            yield f"{type(node).__name__} {node!r}"


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _paths(func: FunctionType, tree: ast.FunctionDef | None) -> set[tuple[str, ...]]:
    """The names of other scopes that a function reads, each with its attributes."""
    code = func.__code__
    if tree is not None:
        return {p for p in _chains(tree) if p[0] not in (*code.co_varnames, *code.co_cellvars)}
    names = _all_names(code)  # any may be a member of any module of the user
    modules = [name for name in names if _is_own_module(func.__globals__.get(name))]
    return {(name,) for name in names} | set(itertools.product(modules, names))


def _all_names(code: CodeType) -> set[str]:
    found = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _all_names(constant)
    return found


def _chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    names: list[str] = []
    inner: ast.AST = node
    while isinstance(inner, ast.Attribute):
        names.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield (inner.id, *reversed(names))
        return
    for child in ast.iter_child_nodes(inner):
        yield from _chains(child)
