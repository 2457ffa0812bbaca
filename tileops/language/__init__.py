"""The public names of the tile language: what users import as ``T``.

Each module lists its own in ``__all__``; here are the other spellings and the dtypes.
"""

from __future__ import annotations

from types import ModuleType as _ModuleType
from typing import Any as _Any

from tileops.dtypes import vector_parts as _vector_parts
from tileops.language import arithmetic, hints, value
from tileops.language.allocation import *
from tileops.language.arithmetic import *
from tileops.language.asynchronous import *
from tileops.language.atomics import *
from tileops.language.barriers import *
from tileops.language.clusters import *
from tileops.language.conversions import *
from tileops.language.copies import *
from tileops.language.definitions import *
from tileops.language.descriptors import *
from tileops.language.exchanges import *
from tileops.language.extern import *
from tileops.language.foreign import *
from tileops.language.hints import *
from tileops.language.launch import *
from tileops.language.layouts import *
from tileops.language.loops import *
from tileops.language.mathematics import *
from tileops.language.matrices import *
from tileops.language.missing import lookup as _lookup
from tileops.language.missing import unknown_construct as _unknown_construct
from tileops.language.missing import unmangled as _unmangled
from tileops.language.parameter_types import *
from tileops.language.persistent import *
from tileops.language.products import *
from tileops.language.random_numbers import *
from tileops.language.reductions import *
from tileops.language.roles import *
from tileops.language.source_text import *
from tileops.language.thread_reductions import *
from tileops.language.value import *
from tileops.language.vectors import *
from tileops.language.vectors import VectorType as _VectorType
from tileops.language.views import *

# Other spellings of the same constructs. These shadow Python's builtins in this module only.
abs = value.absolute
min = arithmetic.minimum
max = arithmetic.maximum
cdiv = ceildiv
all = And = arithmetic.logical_and
any = Or = arithmetic.logical_or
Not = arithmetic.logical_not
print = hints.print_values
c2d_im2col = im2col
Buffer = Tensor
Serial = serial
Unroll = unroll
parallel = Parallel
Vectorized = vectorized
WarpSpecialize = ws
PrimExpr = value.Value
# CUDA's fast forms are the accurate functions here, which is always within their error.
__exp = exp
__exp2 = exp2
__exp10 = exp10
__log = log
__log2 = log2
__log10 = log10
__sin = sin
__cos = cos
__tan = tan
__pow = pow

bool = dtype("bool")
int4 = dtype("int4")
int8 = dtype("int8")
int16 = short = dtype("int16")
int32 = int = dtype("int32")
int64 = long = dtype("int64")
uint4 = dtype("uint4")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = uint = dtype("uint32")
uint64 = dtype("uint64")
float16 = half = dtype("float16")
bfloat16 = dtype("bfloat16")
tfloat32 = dtype("tfloat32")
float32 = float = dtype("float32")
float64 = double = dtype("float64")
float8_e4m3fn = float8_e4m3 = dtype("float8_e4m3fn")
float8_e5m2 = dtype("float8_e5m2")
float8_e8m0fnu = dtype("float8_e8m0fnu")
float4_e2m1fn = dtype("float4_e2m1fn")

# All of the above: the names of the modules, the other spellings and the dtypes.
__all__ = sorted(
    name
    for name, found in globals().items()
    if (name[0] != "_" or (name.startswith("__") and name[-1] != "_"))
    and name != "annotations"
    and not isinstance(found, _ModuleType)
)


def __getattr__(name: str) -> _Any:  # noqa: ANN401
    """Vector types, and names that tileops does not have: using one of those raises an error."""
    if _vector_parts(name) is not None:
        return _VectorType(name)
    found = _lookup(name)
    if found is not None:
        return found
    for written in _unmangled(name):
        if written in __all__:
            return globals()[written]
        if (found := _lookup(written)) is not None:
            return found
    raise _unknown_construct(name, __all__)
