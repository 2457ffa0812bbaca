"""The source of functions: syntax trees with the lines and columns of their files."""

from __future__ import annotations

import ast
import inspect
import linecache
import time
import tokenize
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Generic, TypeVar

from tileops.errors import ProgramSyntaxError
from tileops.location import Location

Value = TypeVar("Value")


class ByCode(Generic[Value]):
    """A table keyed by code objects, each of which equals itself alone.

    To Python, code objects with equal instructions and first lines are equal. Annotations of locals
    are not instructions, so an edited program may equal the one before it.
    """

    def __init__(self) -> None:
        # The code is kept so that no other one gets its id.
        self._known: dict[int, tuple[CodeType, Value]] = {}

    def get(self, code: CodeType) -> Value | None:
        """The value for ``code``, or None."""
        found = self._known.get(id(code))
        return None if found is None else found[1]

    def put(self, code: CodeType, value: Value) -> Value:
        """Keep ``value`` unless ``code`` has one; returns the value that is kept."""
        return self._known.setdefault(id(code), (code, value))[1]


_parsed = ByCode[ast.FunctionDef]()
# Python read an older file when it made the functions that are parsed now.
_STARTED_S = time.time()


def function_tree(func: FunctionType) -> ast.FunctionDef:
    """The ``def`` of ``func``, numbered as in its file; ProgramSyntaxError where it has no source.

    The tree is shared between callers and must not be changed.
    """
    found = _parsed.get(func.__code__)
    if found is None:
        found = _parsed.put(func.__code__, _parse(func))
        keep_inner(found, func.__code__)
    return found


def keep_inner(tree: ast.FunctionDef, code: CodeType) -> None:
    """Keep the trees of the functions inside ``code``, which was compiled from ``tree``.

    They are parsed when they are first called, and the file may have been edited by then.
    """
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    if all(c.co_name.startswith("<") for c in inner):
        return  # lambdas and comprehensions
    places: dict[tuple[str, int], list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            places.setdefault((node.name, first), []).append(node)
    while inner:
        code = inner.pop()
        inner += [c for c in code.co_consts if isinstance(c, CodeType)]
        found = places.get((code.co_name, code.co_firstlineno), [])
        if len(found) == 1:
            _parsed.put(code, found[0])


def _lines_of(func: FunctionType) -> tuple[list[str], int]:
    """The lines of the file from the first decorator of ``func`` on, and the first's number."""
    try:
        lines, before = inspect.findsource(func)
    except (OSError, TypeError) as error:
        file, first = func.__code__.co_filename, func.__code__.co_firstlineno
        raise ProgramSyntaxError(
            f"the source of `{func.__name__}` cannot be found ({file}); a tile program must be "
            "defined in a file or a notebook cell, not by exec() or on the command line",
            location=Location(file, first),
        ) from error
    return lines[before:], before + 1


def _indented_block(lines: Sequence[str]) -> Sequence[str]:
    """The function that ``lines`` begin with, as its indentation tells.

    If that is wrong, the text does not parse: lines that are indented less are in brackets or a
    string. The tokenizer that ``inspect.getblock`` runs takes longer than the parser.
    """
    depth = len(lines[0]) - len(lines[0].lstrip())
    is_inside = False
    for number, line in enumerate(lines):
        content = line.lstrip()
        if not content or content[0] in "#)]}" or len(line) - len(content) > depth:
            continue
        if is_inside:
            return lines[:number]
        is_inside = content.startswith(("def ", "async def "))
    return lines


def _parse(func: FunctionType) -> ast.FunctionDef:
    code = func.__code__
    if hasattr(func, "__wrapped__"):
        raise ProgramSyntaxError(
            f"`{func.__name__}` is wrapped by another decorator; that of tileops must be the one "
            "next to `def`",
            location=Location(code.co_filename, code.co_firstlineno),
        )
    lines, first = _lines_of(func)
    where = Location(code.co_filename, first)
    node = None if code.co_name == "<lambda>" else _statement_of(func.__name__, lines, where)
    if not isinstance(node, ast.FunctionDef):
        text = f"`{func.__name__}` must be defined with `def`"
        raise ProgramSyntaxError(text, location=where)
    is_other = node.name not in (func.__name__, code.co_name)
    if is_other or (_is_recent(code.co_filename) and not _is_as_loaded(code)):
        text = f"the file of `{func.__name__}` changed after it was loaded; import it again"
        raise ProgramSyntaxError(text, location=where)
    class_name = class_around(func)
    if class_name is not None:
        mangle(node, class_name)
    return node


def _is_recent(file: str) -> bool:
    try:
        return Path(file).stat().st_mtime >= _STARTED_S
    except (OSError, ValueError):
        return False


def _is_as_loaded(code: CodeType) -> bool:
    """True if Python makes ``code`` of its place in the file as it is now."""
    # All of the file: the instructions of a function depend on what its module imports.
    text = "".join(linecache.getlines(code.co_filename))
    try:
        pending = [compile(text, code.co_filename, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return False
    place, wanted = (code.co_name, code.co_firstlineno), _content(code)
    while pending:
        one = pending.pop()
        if (one.co_name, one.co_firstlineno) == place and _content(one) == wanted:
            return True
        pending += [c for c in one.co_consts if isinstance(c, CodeType)]
    return False


def _content(code: CodeType) -> tuple[object, ...]:
    constants = [_constant(c) for c in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _content(value)
    if isinstance(value, frozenset):  # whose order depends on the process that compiled it
        return sorted(map(repr, value))
    return repr(value)


def _statement_of(name: str, lines: Sequence[str], where: Location) -> ast.AST:
    refused: SyntaxError | tokenize.TokenError
    for block in (_indented_block, inspect.getblock):
        try:
            text = "".join(block(lines))
            # An indented function parses inside a block of its own; columns stay those of the
            # file, and so do lines, by as many empty ones before it.
            indented = text[:1].isspace()
            before = "\n" * (where.line - 2) + "if 1:\n" if indented else "\n" * (where.line - 1)
            node: ast.AST = ast.parse(before + text).body[0]
            return node.body[0] if indented and isinstance(node, ast.If) else node
        except (SyntaxError, tokenize.TokenError) as error:
            refused = error
    reason = refused.msg if isinstance(refused, SyntaxError) else refused.args[0]
    raise ProgramSyntaxError(
        f"the source of `{name}` does not parse on its own: {reason}", location=where
    ) from refused


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


def refuse_own_name(func: FunctionType) -> None:
    """ProgramSyntaxError where a program reads the name that it is bound to: it cannot be called.

    A name of a class is none that its functions see, and a local one hides the program.
    """
    code, name = func.__code__, func.__name__
    is_seen = func.__qualname__ == name or func.__qualname__.endswith(f"<locals>.{name}")
    is_hidden = name in code.co_varnames or name in code.co_cellvars
    if not is_seen or is_hidden or not _reads_from_outside(code, name):
        return
    for node in ast.walk(function_tree(func)):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            raise ProgramSyntaxError(
                f"the program `{name}` names itself; a program cannot call itself or another one",
                expected="a @T.macro or a plain Python function that both use",
                location=location_of(node, code.co_filename),
            )


def _reads_from_outside(code: CodeType, name: str) -> bool:
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    is_read = name in code.co_names or name in code.co_freevars
    return is_read or any(_reads_from_outside(c, name) for c in inner)


# -- private names: in a class `__n` means `_Class__n` ---------------------------------------
# The fields of nodes with one identifier, which Python's compiler changes.
_IDENTIFIERS = ("id", "attr", "arg", "name", "asname", "rest")


def class_around(func: FunctionType) -> str | None:
    """The name of the innermost class around ``func``, or None."""
    # Python 3.11 keeps what the source says; a decorator may have set __qualname__.
    parts = getattr(func.__code__, "co_qualname", func.__qualname__).split(".")
    for outer, inner in zip(reversed(parts[:-1]), reversed(parts[1:]), strict=True):
        if "<locals>" not in (outer, inner):
            return str(outer)
    return None


def mangle(function: ast.FunctionDef, class_name: str) -> None:
    """Give all of ``function`` but its own name the names that it has inside ``class_name``.

    Its text is compiled again outside the class, where Python leaves them as they are written.
    """
    prefix = class_name.lstrip("_")
    if not prefix:
        return
    pending: list[ast.AST] = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        for field in _IDENTIFIERS:
            name = getattr(node, field, None)
            if isinstance(name, str):
                setattr(node, field, _mangled(name, prefix))
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [_mangled(name, prefix) for name in node.names]
        if isinstance(node, ast.ClassDef):  # its body is its own
            pending += [*node.bases, *node.keywords, *node.decorator_list]
        else:
            pending += ast.iter_child_nodes(node)


def _mangled(name: str, prefix: str) -> str:
    is_private = name.startswith("__") and not name.endswith("__") and "." not in name
    return f"_{prefix}{name}" if is_private else name
