"""Owns finding a function's source: its syntax tree with the file's own lines and columns."""

from __future__ import annotations

import ast
import inspect
import linecache
from types import CodeType, FunctionType

from tileops.errors import ProgramSyntaxError
from tileops.location import Location

_parsed: dict[tuple[CodeType, str], ast.FunctionDef] = {}
_texts: dict[tuple[CodeType, str], tuple[str, int]] = {}


def function_tree(func: FunctionType) -> ast.FunctionDef:
    """The ``def`` of ``func``, numbered as in its file; ProgramSyntaxError where it has no source.

    The tree is shared between callers and must not be changed.
    """
    key = (func.__code__, func.__code__.co_filename)
    if key not in _parsed:
        _parsed[key] = _parse(func)
    return _parsed[key]


def fresh_tree(func: FunctionType) -> ast.FunctionDef:
    """As ``function_tree``, but the caller's own: parsing again costs a tenth of a deep copy."""
    return _parse(func)


def _text_of(func: FunctionType) -> tuple[str, int]:
    """The text of ``func`` from its first decorator on, and the number of its first line."""
    code = func.__code__
    key = (code, code.co_filename)
    if key not in _texts:
        try:
            lines, first = inspect.getsourcelines(func)
        except (OSError, TypeError) as error:
            raise ProgramSyntaxError(
                f"the source of `{func.__name__}` cannot be found ({code.co_filename}); a tile "
                "program must be "
                "defined in a file or a notebook cell, not by exec() or on the command line",
                location=Location(code.co_filename, code.co_firstlineno),
            ) from error
        _texts[key] = ("".join(lines), max(first, 1))
    return _texts[key]


def _parse(func: FunctionType) -> ast.FunctionDef:
    code = func.__code__
    text, first = _text_of(func)
    # An indented function parses inside a block of its own; columns stay those of the file, and
    # so do lines, by as many empty ones before it.
    indented = text[:1].isspace()
    before = "\n" * (first - 2) + "if 1:\n" if indented else "\n" * (first - 1)
    try:
        module = ast.parse(before + text)
    except SyntaxError as error:
        raise ProgramSyntaxError(
            f"the source of `{func.__name__}` does not parse on its own: {error.msg}",
            location=Location(code.co_filename, first),
        ) from error
    node: ast.AST = module.body[0]
    if indented and isinstance(node, ast.If):
        node = node.body[0]
    if not isinstance(node, ast.FunctionDef):
        raise ProgramSyntaxError(
            f"`{func.__name__}` must be defined with `def`",
            location=Location(code.co_filename, first),
        )
    if node.name != func.__name__ and node.name != code.co_name:
        raise ProgramSyntaxError(
            f"the file of `{func.__name__}` changed after it was loaded; import it again",
            location=Location(code.co_filename, first),
        )
    return node


def location_of(node: ast.AST, file: str) -> Location:
    """The place of a syntax node, up to the end of its first line."""
    line = getattr(node, "lineno", 0)
    start = _column(file, line, getattr(node, "col_offset", -1))
    end = -1
    if getattr(node, "end_lineno", None) == line:
        end = _column(file, line, getattr(node, "end_col_offset", -1))
    elif start >= 0:
        end = len(linecache.getline(file, line).rstrip())
    return Location(file, line, start, end)


def _column(file: str, line: int, offset: int) -> int:
    """``ast`` counts columns in UTF-8 bytes; locations count characters."""
    text = linecache.getline(file, line)
    if offset < 0 or text.isascii():
        return offset
    return len(text.encode("utf-8")[:offset].decode("utf-8", errors="ignore"))


def forget(func: FunctionType) -> None:
    """Drop what is remembered of a function's source (it will not be traced again)."""
    key = (func.__code__, func.__code__.co_filename)
    _parsed.pop(key, None)
    _texts.pop(key, None)
