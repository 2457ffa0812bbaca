"""The command ``python -m tileops check``: what in a file of tile programs is not supported.

The file is parsed and never run. What depends on values that only a run has (shapes, dtypes in
variables, thread indices) is left to the trace, which reports it with the same locations.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tileops import language
from tileops.cli.check_forms import LANGUAGE, TVM, Form, Found, Names, forms, missing_part
from tileops.cli.check_paths import paths_of
from tileops.dtypes import is_dtype_like, vector_parts
from tileops.errors import TileopsError
from tileops.language import missing
from tileops.language.allocation import SCOPES

_NO_TARGET = "tileops does not have it, on any target"
_NO_NAME = "tileops has no such module or name"


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One thing that is not supported. ``line`` and ``column`` count from 1."""

    line: int
    column: int
    construct: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Use:
    """A construct of the file: where it is, and which paths take it."""

    construct: str
    lines: tuple[int, ...]
    paths: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What was found in one file; ``has_language`` is False for a file without the language.

    ``uses`` are the constructs that are supported.
    """

    has_language: bool
    findings: tuple[Finding, ...]
    uses: tuple[Use, ...] = ()


def add_parser(commands: Any) -> None:  # noqa: ANN401  (argparse's own class is private)
    """Add the command ``check``."""
    parser = commands.add_parser("check", help="what in a file of tile programs is not supported")
    parser.add_argument("file", nargs="+", type=Path, help="a Python file; it is not run")
    parser.add_argument(
        "--constructs", action="store_true", help="also print which path takes each construct"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.set_defaults(run=check_files)


def check_files(options: argparse.Namespace) -> int:
    """Print one line a finding; 1 if there is one, else 0."""
    reports = {path: _report(path) for path in options.file}
    if options.json:
        found = [
            {"file": str(path), "supported": not report.findings, **dataclasses.asdict(report)}
            for path, report in reports.items()
        ]
        print(json.dumps(found, indent=1))
    else:
        for path, report in reports.items():
            if options.constructs:
                for use in report.uses:
                    lines = ", ".join(map(str, use.lines))
                    print(f"{path}: {use.construct}, line {lines}: {use.paths}")
            _print(path, report)
    return int(any(report.findings for report in reports.values()))


def _report(path: Path) -> Report:
    try:
        with tokenize.open(path) as file:
            return analyze(file.read(), str(path))
    except (SyntaxError, ValueError) as error:
        raise TileopsError(f"{path} is not Python: {error}") from None


def _print(path: Path, report: Report) -> None:
    for found in report.findings:
        print(f"{path}:{found.line}:{found.column}: {found.construct}: {found.reason}")
    if not report.has_language:
        print(f"{path}: does not import the tile language")
    elif not report.findings:
        print(f"{path}: everything that can be told without running it is supported")
    else:
        count = len(report.findings)
        print(f"{path}: {count} {'thing is' if count == 1 else 'things are'} not supported")


def analyze(source: str, file: str = "<program>") -> Report:
    """What is not supported in a file's text. SyntaxError if it is not Python."""
    tree = ast.parse(source, file)
    names = Names(tree)
    if all(path.startswith(TVM) for _, path in names.imports):
        return Report(False, ())
    lines = source.splitlines()
    found = {
        Finding(node.lineno, _column(lines, node), construct, reason)
        for node, construct, reason in _everything(tree, names)
    }
    return Report(True, tuple(sorted(found)), tuple(_uses(tree, names)))


def _uses(tree: ast.Module, names: Names) -> Iterator[Use]:
    lines: dict[str, set[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
            name = names.construct(node)
            if name is not None and name in language.__all__:
                lines.setdefault(name, set()).add(node.lineno)
    for name in sorted(lines):
        yield Use(f"T.{name}", tuple(sorted(lines[name])), paths_of(name))


def _column(lines: list[str], node: Form) -> int:
    """The column from 1, in characters; ``ast`` counts bytes from 0."""
    text = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
    return len(text.encode()[: node.col_offset].decode(errors="ignore")) + 1


def _everything(tree: ast.Module, names: Names) -> Found:
    yield from _imports(names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from _reference(node, names)
        elif isinstance(node, ast.Call):
            yield from _call(node, names)
    yield from forms(tree, names)


# -- names -------------------------------------------------------------------------------------
def _imports(names: Names) -> Found:
    for node, path in names.imports:
        name = path.removeprefix(f"{LANGUAGE}.")
        if name != path and "." not in name:
            yield from _unusable_name(node, name)
        elif (part := missing_part(path)) is not None:
            yield node, *_absent(part)


def _absent(part: str) -> tuple[str, str]:
    """A path that tileops does not have, as a program writes it, and why."""
    if part.startswith(f"{TVM}."):
        return part.removeprefix("tileops.dialect."), "tileops is not built on TVM"
    return part, _NO_NAME


def _reference(node: ast.Attribute, names: Names) -> Found:
    path, name = names.path(node), names.construct(node)
    if name is not None:
        yield from _unusable_name(node, name)
    elif path and not path.startswith(f"{LANGUAGE}.") and missing_part(path) == path:
        yield node, *_absent(path)


def _unusable_name(node: Form, name: str) -> Found:
    """The finding for ``T.<name>``, unless it can be used."""
    if name in language.__all__:
        return
    found = missing.lookup(name)
    if found is not None and vector_parts(name) is None:
        instead = missing.INSTEAD_OF.get(found.reason)
        use = f"; instead: {instead}" if instead else ""
        yield node, f"T.{name}", f"{found.reason}; {_NO_TARGET}{use}"
    elif missing_part(f"{LANGUAGE}.{name}") is not None:
        like = missing.nearest(name, language.__all__)
        hint = f"; did you mean T.{like}?" if like else ""
        yield node, f"T.{name}", f"the tile language has no such name{hint}"


# -- arguments ---------------------------------------------------------------------------------
def _is_given(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is None)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def _is_text_outside(*known: str) -> Callable[[ast.expr], bool]:
    return lambda node: (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in known
    )


_BAD_SCOPE = "a scope that tileops does not have"
_CLUSTER = (_is_given, "a cluster of blocks")
_VECTOR_RESULT = (_is_true, "gives a vector")
# Construct and parameter to what makes an argument unsupported, and why.
_ARGUMENTS: dict[tuple[str, str], tuple[Callable[[ast.expr], bool], str]] = {
    ("Kernel", "prelude"): (_is_given, "inserts C or CUDA source text"),
    ("gemm", "mbar"): (_is_given, "a barrier of the asynchronous gemm"),
    ("tma_copy", "cluster_mask"): _CLUSTER,
    ("mbarrier_arrive", "cta_id"): _CLUSTER,
    ("cast", "round"): (_is_text_outside("", "rn"), "a rounding other than to nearest even"),
    ("atomic_addx2", "return_prev"): _VECTOR_RESULT,
    ("atomic_addx4", "return_prev"): _VECTOR_RESULT,
    ("alloc_var", "scope"): (_is_text_outside("local.var", "local"), _BAD_SCOPE),
    ("alloc_global", "scope"): (_is_text_outside("global"), _BAD_SCOPE),
    **{
        (f"alloc_{kind}", "scope"): (_is_text_outside(*SCOPES), _BAD_SCOPE)
        for kind in ("shared", "fragment", "local")
    },
}


def _call(node: ast.Call, names: Names) -> Found:
    name = names.construct(node.func)
    if name is None or name not in language.__all__:
        return
    construct = getattr(language, name)
    if isinstance(construct, language.dtype):
        if len(node.args) > 1:
            yield node, f"T.{name}", f"a vector of several values; {_NO_TARGET}"
        return
    if not inspect.isfunction(construct):  # T.Tensor and its like, whose texts are dtypes
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from _text_dtype(argument)
        return
    parameters = inspect.signature(construct).parameters
    for place, value in _given_arguments(node, list(parameters.values())):
        rule = _ARGUMENTS.get((name, place))
        if rule is not None and rule[0](value):
            yield value, f"T.{name}({place}=...)", f"{rule[1]}; {_NO_TARGET}"
        if place == "dtype":
            yield from _text_dtype(value)
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if place not in parameters and not takes_any:
            yield value, f"T.{name}({place}=...)", "no such argument"


def _given_arguments(
    node: ast.Call, parameters: list[inspect.Parameter]
) -> Iterator[tuple[str, ast.expr]]:
    """Pairs of a parameter's name and what the call gives for it, as far as the call shows."""
    if not any(isinstance(argument, ast.Starred) for argument in node.args):
        for parameter, value in zip(parameters, node.args, strict=False):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY):
                break
            yield parameter.name, value
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value


def _text_dtype(node: ast.expr) -> Found:
    """The finding for a vector type that stands as a string where a dtype does."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = missing.lookup(node.value)
        is_vector = found is not None and found.reason == missing.VECTOR_TYPE
        if is_vector and is_dtype_like(node.value.rpartition("x")[0]):
            yield node, repr(node.value), f"{missing.VECTOR_TYPE}; {_NO_TARGET}"
