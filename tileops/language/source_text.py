"""CUDA C++ that a program brings along for its threads, and calls of its functions."""

from __future__ import annotations

import re

from tileops.dtypes import DType, is_dtype_like
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.foreign.device_sources import cuda_source
from tileops.ir import fold
from tileops.ir.expr import Expr, Region
from tileops.ir.extern import digest_of_parts
from tileops.ir.stmt import ExternCall, ImportSource
from tileops.ir.threads import CUDA_HEADERS
from tileops.language.asynchronous import AccessPointer, access_ptr
from tileops.language.missing import on_which_target
from tileops.language.operands import element_region, text_of
from tileops.language.tracer import Tracer, require_tracer
from tileops.language.value import Value, as_dtype, describe, to_expr

__all__ = ["address_of", "call_extern", "import_source"]

_NOTHING = ("handle", "void")
_NAME = re.compile(r"[A-Za-z_][\w:]*(<[\w:, ]*>)?")


def _tracer_of(construct: str) -> Tracer:
    tracer = require_tracer(construct)
    tracer.require_launch(construct)
    if tracer.in_parallel:
        raise ProgramValueError(f"{construct} is for threads and cannot be inside T.Parallel")
    return tracer


def import_source(source: str | None = None) -> None:
    """CUDA C++ whose functions T.call_extern may call in this launch; nothing for None.

    It finds CUDA's headers of float16 and bfloat16 included, and may include others.
    """
    tracer = _tracer_of("T.import_source")
    if source is None:
        return
    text = text_of("T.import_source", "source", source)
    included = "".join(f"#include <{header}>\n" for header in CUDA_HEADERS)
    parts = cuda_source(included + text, "T.import_source", (), {}, ()).parts()
    tracer.emit(ImportSource(text, digest_of_parts("cuda", "", parts)))


def address_of(element: object) -> AccessPointer:
    """The address of an element, through which T.call_extern's function may read and write."""
    return access_ptr(element, "rw")


def call_extern(*args: object, dtype: object = None) -> Value | None:
    """Call a function of T.import_source, or of CUDA, by each thread: ``dtype, name, *arguments``.

    ``dtype`` is what it returns, "handle" and "void" for nothing; it may be given by name.
    Arguments are numbers, and T.access_ptr or T.address_of for addresses. Nothing checks that what
    is behind an address exists.
    """
    tracer = _tracer_of("T.call_extern")
    given = list(args)
    if dtype is None and given:
        dtype = given.pop(0)
    if not given or not isinstance(given[0], str):
        raise ProgramTypeError(
            "T.call_extern: wrong arguments", expected="a dtype, the name of a function, arguments",
            found=", ".join(map(describe, args)) or "nothing",
        )  # fmt: skip
    name = str(given.pop(0))
    if not _NAME.fullmatch(name):
        raise ProgramValueError(
            "T.call_extern: wrong name", expected="the name of a function", found=repr(name)
        )
    found: list[Expr | Region] = []
    outputs: list[Region] = []
    for arg in given:
        if isinstance(arg, AccessPointer):
            region = _addressed(arg)
            found.append(region)
            if "w" in arg.access:
                outputs.append(region)
        else:
            found.append(_number(to_expr(arg, "an argument of T.call_extern")))
    kind = _returned(dtype)
    if kind is None:
        tracer.emit(ExternCall(name, tuple(found), tuple(outputs)))
        return None
    result = tracer.new_var(name.rpartition(":")[2].partition("<")[0], kind)
    tracer.emit(ExternCall(name, tuple(found), tuple(outputs), result))
    tracer.define(result)
    return Value(result)


def _addressed(pointer: AccessPointer) -> Region:
    region = element_region(pointer.element)
    if region.dtype.bits < 8:
        raise UnsupportedConstructError(
            f"the address of an element of {region.dtype}, which has none, is not supported by "
            f"tileops{on_which_target()}"
        )
    return region


def _number(expr: Expr) -> Expr:
    """A number as C++ takes it: a float of fewer than 32 bits goes as float32."""
    narrow = expr.dtype.is_float and expr.dtype.bits < 32
    return fold.cast(expr, fold.FLOAT32) if narrow else expr


def _returned(dtype: object) -> DType | None:
    if dtype in _NOTHING:
        return None
    if not is_dtype_like(dtype):
        raise ProgramTypeError(
            "T.call_extern: wrong dtype", expected="a dtype, 'handle' or 'void'",
            found=describe(dtype),
        )  # fmt: skip
    return as_dtype(dtype)
