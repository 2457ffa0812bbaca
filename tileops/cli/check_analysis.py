"""Owns what ``python -m tileops check`` finds in a file: imports, names and arguments.

The file is parsed and never run. What depends on values that only a run has (shapes, dtypes in
variables, thread indices) is left to the trace, which reports it with the same locations.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tileops import language
from tileops.cli.check_forms import Form, forms
from tileops.cli.check_names import LANGUAGE, Names, missing_part
from tileops.dtypes import is_dtype_like, vector_parts
from tileops.language import unsupported
from tileops.language.missing import nearest

_NO_TARGET = "tileops does not have it, on any target"


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is not supported. ``line`` and ``column`` count from 1."""

    line: int
    column: int
    construct: str
    reason: str


@dataclass(frozen=True)
class Report:
    """What was found in one file; ``has_language`` is False for a file without the language."""

    has_language: bool
    findings: tuple[Finding, ...]


def analyze(source: str, file: str = "<program>") -> Report:
    """What is not supported in a file's text. SyntaxError if it is not Python."""
    tree = ast.parse(source, file)
    names = Names(tree)
    if not names.found_any:
        return Report(False, ())
    lines = source.splitlines()
    found = {
        Finding(node.lineno, _column(lines, node), construct, reason)
        for node, construct, reason in _everything(tree, names)
    }
    return Report(True, tuple(sorted(found)))


def _column(lines: list[str], node: Form) -> int:
    """The column from 1, in characters; ``ast`` counts bytes from 0."""
    text = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    return len(text.encode()[: node.col_offset].decode(errors="ignore")) + 1


def _everything(tree: ast.Module, names: Names) -> Iterator[tuple[Form, str, str]]:
    yield from _imports(tree, names)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
            yield from _reference(node, names)
        elif isinstance(node, ast.Call):
            yield from _call(node, names)
    yield from forms(tree, names)


# -- names -------------------------------------------------------------------------------------
def _imports(tree: ast.Module, names: Names) -> Iterator[tuple[Form, str, str]]:
    for node, path in names.imports:
        name = path.removeprefix(f"{LANGUAGE}.")
        if name != path and "." not in name:
            reason = _reason_of_name(name)
            if reason is not None:
                yield node, f"T.{name}", reason
        elif (missing := missing_part(path)) is not None:
            yield node, missing, "tileops has no such module or name"
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            modules = [statement.module or ""]
        else:
            continue
        if any(module.split(".")[0] == "tvm" for module in modules):
            yield statement, "tvm", "tileops is not built on TVM and takes none of its objects"


def _reference(node: ast.Attribute | ast.Name, names: Names) -> Iterator[tuple[Form, str, str]]:
    path = names.path(node)
    if path is None:
        return
    name = names.construct(node)
    if name is not None:
        # What a `from` import binds has been reported where it is imported.
        reason = _reason_of_name(name) if isinstance(node, ast.Attribute) else None
        if reason is not None:
            yield node, f"T.{name}", reason
    elif (
        isinstance(node, ast.Attribute)
        and not path.startswith(f"{LANGUAGE}.")
        and missing_part(path) == path
    ):
        yield node, path, "tileops has no such module or name"


def _reason_of_name(name: str) -> str | None:
    """Why ``T.<name>`` cannot be used; None if it can."""
    if name in language.__all__:
        return None
    found = unsupported.lookup(name)
    if found is not None and vector_parts(name) is None:
        return f"{found.reason}; {_NO_TARGET}"
    if missing_part(f"{LANGUAGE}.{name}") is None:
        return None
    like = nearest(name, language.__all__)
    return "the tile language has no such name" + (f"; did you mean T.{like}?" if like else "")


# -- arguments ---------------------------------------------------------------------------------
def _is_given(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is None)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def _is_text_outside(*known: str) -> Callable[[ast.expr], bool]:
    return lambda node: (
        isinstance(node, ast.Constant) and (isinstance(node.value, str) and node.value not in known)
    )


_SCOPES = ("shared", "shared.dyn", "fragment", "local.fragment", "local", "local.var")
_bad_scope = (_is_text_outside(*_SCOPES), "a scope that tileops does not have")
_vector_result = (_is_true, "gives a vector")
# Constructs that take text which is no dtype.
_TAKE_TEXT = ("print", "device_assert", "const", "dynamic", "symbolic")
# Construct and argument to what makes it unsupported, and why.
_ARGUMENTS: dict[tuple[str, str], tuple[Callable[[ast.expr], bool], str]] = {
    ("Kernel", "prelude"): (_is_given, "inserts C or CUDA source text"),
    ("gemm", "mbar"): (_is_given, "a barrier of the asynchronous gemm"),
    ("sync_threads", "barrier_id"): (_is_given, "a named barrier"),
    ("sync_threads", "arrive_count"): (_is_given, "a named barrier"),
    ("cast", "round"): (_is_text_outside("", "rn"), "a rounding other than to nearest even"),
    ("atomic_addx2", "return_prev"): _vector_result,
    ("atomic_addx4", "return_prev"): _vector_result,
    ("alloc_var", "scope"): (_is_text_outside("local.var", "local"), _bad_scope[1]),
    ("alloc_global", "scope"): (_is_text_outside("global"), _bad_scope[1]),
    **{(f"alloc_{kind}", "scope"): _bad_scope for kind in ("shared", "fragment", "local")},
}


def _call(node: ast.Call, names: Names) -> Iterator[tuple[Form, str, str]]:
    name = names.construct(node.func)
    if name is None or name not in language.__all__:
        return
    construct = getattr(language, name)
    if isinstance(construct, language.dtype):
        if len(node.args) > 1:
            yield node, f"T.{name}", f"a vector of several values; {_NO_TARGET}"
        return
    if name not in _TAKE_TEXT:
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from _text_dtype(argument)
    if not inspect.isfunction(construct):
        return
    parameters = list(inspect.signature(construct).parameters.values())
    for place, value in _given_arguments(node, parameters):
        rule = _ARGUMENTS.get((name, place))
        if rule is not None and rule[0](value):
            yield value, f"T.{name}({place}=...)", f"{rule[1]}; {_NO_TARGET}"
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        known = {p.name for p in parameters}
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in known:
                yield keyword.value, f"T.{name}({keyword.arg}=...)", "no such argument"


def _given_arguments(
    node: ast.Call, parameters: list[inspect.Parameter]
) -> Iterator[tuple[str, ast.expr]]:
    """Pairs of a parameter's name and what the call gives for it, as far as the call shows."""
    if not any(isinstance(argument, ast.Starred) for argument in node.args):
        positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        for parameter, value in zip(positional, node.args, strict=False):
            if parameter.kind is parameter.VAR_POSITIONAL:
                break
            yield parameter.name, value
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value


def _text_dtype(node: ast.expr) -> Iterator[tuple[Form, str, str]]:
    """A dtype that stands as a string in a call of the language."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return
    found = unsupported.lookup(node.value)
    if found is not None and found.reason == unsupported.VECTOR_TYPE and _is_vector(node.value):
        yield node, repr(node.value), f"{found.reason}; {_NO_TARGET}"


def _is_vector(text: str) -> bool:
    return is_dtype_like(text.rpartition("x")[0])
