"""Errors for lines that Python itself refuses, and for names that are None."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, TracebackType

from tileops.dtypes import DType
from tileops.errors import (
    ArgumentTypeError,
    ProgramAttributeError,
    ProgramError,
    ProgramIndexError,
    ProgramTypeError,
    ProgramValueError,
)
from tileops.frontend.source import function_tree, location_of
from tileops.language.missing import is_of_the_language, nearest, unknown_attribute
from tileops.location import Location

_PACKAGE = Path(__file__).parent.parent
_REFUSED_CALL = re.compile(
    r"(?P<function>[\w.]+)\(\) (got (an unexpected|some positional|multiple)|missing|takes)"
)
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")
# What other languages call an argument.
_OTHER_WORDS = {
    "axis": "dim",
    "stages": "num_stages",
    "trans_a": "transpose_A",
    "trans_b": "transpose_B",
    "transa": "transpose_A",
    "transb": "transpose_B",
    "message": "msg",
}


def of_python(
    error: Exception, place: Location | None, nones: Mapping[str, str], func: FunctionType
) -> Exception:
    """The error of a program at ``place`` for one that Python raised; ``error`` where it is none.

    ``nones`` says of names that stand for None why they do (see ``with_reason``).
    """
    files = _files(error.__traceback__)
    if isinstance(error, ArgumentTypeError):
        called = any(Path(f).parent == _PACKAGE / "jit" for f in files)
        text = f"{error}; a program cannot call a program"
        instead = "a @T.macro or a plain Python function that both use"
        return ProgramTypeError(text, expected=instead, location=place) if called else error
    if files[-1:] == [] or _PACKAGE in Path(files[-1]).parents:
        return error  # not where the user's line asked Python for it
    if isinstance(error, AttributeError):
        if is_of_the_language(error.obj):
            return unknown_attribute(error.obj, str(error.name)).at(place)
        of_none = ProgramAttributeError(str(error), location=place)
        return with_reason(of_none, nones, func) if nones and error.obj is None else error
    if isinstance(error, KeyError):
        is_dtype = any(isinstance(arg, DType) for arg in error.args)
        return _unknown_dtype(error, place) if is_dtype else error
    if isinstance(error, IndexError):
        return ProgramIndexError(str(error), location=place)
    if isinstance(error, TypeError):
        return with_reason(_type_error(error, place), nones, func)
    return error


def _unknown_dtype(error: KeyError, place: Location | None) -> ProgramTypeError:
    return ProgramTypeError(
        "a dict does not have this dtype as a key; torch's dtypes are other keys",
        expected="a dict of T's dtypes, or A.dtype.as_torch() for one of torch's",
        found=str(error.args[0]),
        location=place,
    )


def _files(trace: TracebackType | None) -> list[str]:
    """The files of the frames between the trace and the error."""
    found = []
    while trace is not None:
        found.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    called = (n for n, file in enumerate(found) if _PACKAGE not in Path(file).parents)
    return found[next(called, 0) :]


def _type_error(error: TypeError, place: Location | None) -> ProgramTypeError:
    text = str(error)
    call = _REFUSED_CALL.match(text)
    found = _construct(call["function"].rpartition(".")[2]) if call else None
    if found is None:
        # torch names what it was given by the class.
        is_torchs = re.search(r"argument '.*\b(BufferRef|RegionRef|Value)\b", text)
        hint = "; a tensor or size of a program is none of torch's: T.empty makes an output"
        return ProgramTypeError(text + (hint if is_torchs else ""), location=place)
    name, signature = found
    text = f"T.{name}" + text.removeprefix(call["function"] if call else "").removeprefix("()")
    unknown = _UNEXPECTED.search(text)
    if unknown is not None:
        word = unknown[1]
        known = list(signature.parameters)
        like = _OTHER_WORDS.get(word.lower(), word)
        meant = like if like in known else nearest(word, known)
        text += f"; did you mean {meant}?" if meant else ""
    return ProgramTypeError(text, expected=f"T.{name}{_shown(signature)}", location=place)


def _construct(name: str) -> tuple[str, inspect.Signature] | None:
    """The construct whose function Python calls ``name``, as users call it, and its signature."""
    # Loaded already; an import here would be a circle.
    language = sys.modules["tileops.language"]
    for public in (name, *language.__all__):
        found = getattr(language, public, None) if public in language.__all__ else None
        if inspect.isfunction(found) and found.__name__ == name:
            return public, inspect.signature(found)
    return None


def _shown(signature: inspect.Signature) -> str:
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))


# -- names that stand for None ---------------------------------------------------------------------
def with_reason(
    error: ProgramTypeError | ProgramError, nones: Mapping[str, str], func: FunctionType
) -> ProgramError:
    """``error``, and where it is about None why a name of its statement is None."""
    if not nones or error.location is None:
        return error
    if "NoneType" not in error.message and error.found != "None":
        return error
    in_statement = _names_at(func, error.location.outermost.line)
    said = [reason for name, reason in nones.items() if name in in_statement]
    text = "; ".join([error.message, *(said or nones.values())])
    return type(error)(text, location=error.location, expected=error.expected, found=error.found)


def _names_at(func: FunctionType, line: int) -> set[str]:
    """The names in the statement of ``func`` at ``line``, without those of statements inside."""
    around = [
        node
        for node in ast.walk(function_tree(func))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not around:
        return set()
    node = max(around, key=lambda n: n.lineno)
    is_compound = hasattr(node, "body")
    return {
        n.id
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and (not is_compound or n.lineno == line)
    }


# -- names that Python does not keep ---------------------------------------------------------------
def hidden_name(func: FunctionType, error: NameError) -> ProgramValueError | None:
    """The error for a name that only annotations use: Python does not keep it."""
    for node in ast.walk(function_tree(func)):
        if not isinstance(node, ast.AnnAssign):
            continue
        for name in ast.walk(node.annotation):
            if isinstance(name, ast.Name) and name.id == error.name:
                return ProgramValueError(
                    f"`{name.id}` is not known here: under `from __future__ import annotations` a "
                    "function keeps no name of the one around it that only its annotations use",
                    expected=f"the module without that import, or `{name.id}` used in the program",
                    location=location_of(name, func.__code__.co_filename),
                )
    return None
