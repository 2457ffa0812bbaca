"""Triton's and Gluon's kernels: what they are made of, and the parameters that they declare.

Triton itself is not imported: a program that launches such a kernel has imported it.
"""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from tileops.errors import UnsupportedConstructError
from tileops.foreign.registry import keep
from tileops.foreign.syntax import canonical, digest_of_text, names_read, unparsed
from tileops.ir.extern import DIVISIBLE, ONE, WIDE, digest_of_parts

EMPTY = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel.

    ``mask`` has the bits of the facts that Triton specialises an integer on; ``type`` is the type
    that its annotation gives, empty if none.
    """

    name: str
    is_constexpr: bool
    mask: int
    type: str = ""
    default: Any = EMPTY


@dataclass(frozen=True)
class TritonKernel:
    """A ``@triton.jit`` or ``@gluon.jit`` function and the functions that it calls."""

    language: str
    name: str
    parts: tuple[tuple[str, str], ...]
    params: tuple[Parameter, ...]


def is_launchable(value: object) -> bool:
    """True for what ``value[grid](...)`` launches: a jit function, also under decorators."""
    return _is_a(value, "KernelInterface")


def is_wrapper(value: object, name: str) -> bool:
    """True for a launchable that Triton's decorator class ``name`` made: Autotuner, Heuristics."""
    return is_launchable(value) and _is_a(value, name)


def _is_a(value: object, *names: str) -> bool:
    return any(c.__name__ in names and _is_tritons(c.__module__) for c in type(value).__mro__)


def _is_tritons(module: object) -> bool:
    return isinstance(module, str) and (module == "triton" or module.startswith("triton."))


def kernel_of(function: Any) -> TritonKernel:
    """What is known of a jit function; compiles find it again by its digest.

    UnsupportedConstructError for one whose meaning depends on what cannot be digested.
    """
    language = "gluon" if _is_a(function, "GluonJITFunction") else "triton"
    name = str(function.fn.__name__)
    parts = tuple(_Parts().of_kernel(function))
    keep(digest_of_parts(language, name, parts), function)
    return TritonKernel(language, name, parts, tuple(map(_parameter, function.params)))


def _parameter(param: Any) -> Parameter:
    declared = str(param.annotation_type or "").removeprefix("const ")
    mask = 0
    if not param.do_not_specialize:
        mask |= ONE if param.do_not_specialize_on_alignment else ONE | DIVISIBLE
    if not declared:
        mask |= WIDE
    return Parameter(param.name, bool(param.is_constexpr), mask, declared, param.default)


def source_text(function: Any) -> str:
    """The kernel and the functions that it calls as Python, without comments."""
    return "\n\n".join(_Parts().sources(function)) + "\n"


class _Parts:
    """One walk over a kernel's functions and the values that they read."""

    def __init__(self) -> None:
        self._kernel = ""
        self._seen: dict[int, str] = {}
        self._names: dict[str, int] = {}
        self._values: dict[str, str] = {}
        self._trees: list[ast.AST] = []

    def of_kernel(self, function: Any) -> Iterator[tuple[str, str]]:
        """Each part's name with its digest, the kernel first."""
        self._kernel = str(function.fn.__name__)
        yield from self._function(function)

    def sources(self, function: Any) -> list[str]:
        """The text of each function."""
        list(self._function(function))
        return [unparsed(tree) for tree in self._trees]

    def _function(self, function: Any) -> Iterator[tuple[str, str]]:
        own = self._enter(function, function.fn.__name__)
        tree = _tree_of(function)
        self._trees.append(tree)
        # Defaults are values, and an annotation decides what is a constexpr.
        facts = [
            (p.name, p.annotation, p.do_not_specialize, p.do_not_specialize_on_alignment)
            for p in getattr(function, "params", ())
        ]
        flags = (
            bool(getattr(function, "noinline", False)),
            bool(getattr(function, "debug", False)),
        )
        read: list[tuple[str, str]] = []
        inner: list[tuple[str, str]] = []
        for chain, value in _values_read(function, tree):
            text, parts = self._value(value, ".".join(chain))
            read.append((".".join(chain), text))
            inner += parts
        text = repr((canonical(tree), facts, flags, read))
        yield f"function {own}", digest_of_text(text)
        yield from inner

    def _enter(self, value: object, name: str) -> str:
        """The name of a part, which no other part of the kernel has."""
        count = self._names[name] = self._names.get(name, 0) + 1
        self._seen[id(value)] = unique = name if count == 1 else f"{name}#{count}"
        return unique

    def _value(self, value: Any, name: str) -> tuple[str, list[tuple[str, str]]]:
        """The text of a value that a function reads, and the parts that it brings."""
        if id(value) in self._seen:
            return f"function {self._seen[id(value)]}", []
        if _is_a(value, "JITCallable", "JITFunction", "ConstexprFunction"):
            parts = list(self._function(value))
            return parts[0][0], parts
        if _is_a(value, "constexpr"):
            return "constexpr", [self._plain(name, value.value)]
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, FunctionType):
            return f"python {value.__name__} {digest_of_text(canonical(_python_tree(value)))}", []
        if isinstance(value, (tuple, list)):
            found = [self._value(item, name) for item in value]
            return repr([text for text, _ in found]), [p for _, parts in found for p in parts]
        if hasattr(value, "data_ptr"):
            raise UnsupportedConstructError(
                f"the foreign kernel {self._kernel} reads the tensor `{name}` from outside; pass "
                "it as an argument"
            )
        if value is None or isinstance(value, (bool, int, float, str)):
            return "value", [self._plain(name, value)]
        return f"a {type(value).__qualname__}", []

    def _plain(self, name: str, value: object) -> tuple[str, str]:
        """A value as a part, under a name that no other value of the kernel has."""
        text, number, unique = repr(value), 1, name
        if any(letter.isspace() for letter in text):  # a part is a word in a program's text
            text = digest_of_text(text)
        while self._values.setdefault(unique, text) != text:
            number += 1
            unique = f"{name}#{number}"
        return f"value {unique}", text

    def _class(self, value: type) -> tuple[str, list[tuple[str, str]]]:
        """A class of the user's, such as an aggregate: its fields and methods."""
        own = self._enter(value, value.__name__)
        fields, parts = [repr(sorted(getattr(value, "__annotations__", {}).items(), key=repr))], []
        for name, member in sorted(vars(value).items()):
            if name.startswith("__") and name != "__init__":
                continue
            text, more = self._value(member, f"{own}.{name}")
            fields.append(f"{name} {text}")
            parts += more
        return f"class {own}", [(f"class {own}", digest_of_text(repr(fields))), *parts]


def _values_read(function: Any, tree: ast.AST) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values from outside that a function reads; Triton's own go with Triton's version."""
    scope = _scope_of(function)
    for chain in names_read(tree):
        if chain[0] not in scope:
            continue
        value, used = scope[chain[0]], 1
        while isinstance(value, ModuleType) and not _is_tritons(value.__name__):
            if used == len(chain) or not hasattr(value, chain[used]):
                break
            value, used = getattr(value, chain[used]), used + 1
        own = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
        if isinstance(value, ModuleType) or _is_tritons(own):
            continue
        yield chain[:used], value


def _module_of(value: Any) -> object:
    """The module in which a function, a class or a value of Triton's is defined."""
    if _is_a(value, "constexpr"):
        return None
    inner = (
        getattr(value, "fn", value) if _is_a(value, "JITCallable", "ConstexprFunction") else value
    )
    if isinstance(inner, (type, FunctionType)):
        return inner.__module__
    return type(inner).__module__


def _scope_of(function: Any) -> Mapping[str, Any]:
    code, cells = function.fn.__code__, function.fn.__closure__ or ()
    found = dict(function.fn.__globals__)
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _tree_of(function: Any) -> ast.AST:
    if hasattr(function, "parse"):
        module: ast.Module = function.parse()
        return module.body[0]
    return _python_tree(function.fn)


def _python_tree(function: FunctionType) -> ast.AST:
    import textwrap

    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise UnsupportedConstructError(
            f"the foreign kernel uses the Python function `{function.__name__}`, whose source "
            f"cannot be found: {error}"
        ) from error
    node = ast.parse(source).body[0]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        node.decorator_list = []
    return node
