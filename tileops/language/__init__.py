"""Owns the tile language's public names: what users import as ``T``."""

from __future__ import annotations

from typing import Any as _Any

from tileops.dtypes import vector_parts as _vector_parts
from tileops.language.allocation import (
    alloc_fragment,
    alloc_global,
    alloc_local,
    alloc_reducer,
    alloc_shared,
    alloc_var,
    empty,
)
from tileops.language.annotations import (
    FragmentBuffer,
    LocalBuffer,
    Ref,
    SharedBuffer,
    StridedTensor,
    Tensor,
    Var,
)
from tileops.language.arithmetic import (
    Select,
    absolute_value,
    align_up,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceildiv,
    clamp,
    floordiv,
    floormod,
    fmod,
    if_then_else,
    index_to_coordinates,
    infinity,
    logical_and,
    logical_not,
    logical_or,
    max_value,
    maximum,
    min_value,
    minimum,
    shift_left,
    shift_right,
    truncdiv,
    truncmod,
)
from tileops.language.atomics import (
    atomic_add,
    atomic_addx2,
    atomic_addx4,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
)
from tileops.language.checks import (
    assume,
    device_assert,
    print_values,
)
from tileops.language.conversions import Cast, cast, reinterpret
from tileops.language.copies import (
    clear,
    copy,
    fill,
    im2col,
    reshape,
    transpose,
    view,
)
from tileops.language.definitions import (
    const,
    dynamic,
    macro,
    symbolic,
)
from tileops.language.dtype_variables import DTypeVar
from tileops.language.hints import (
    annotate_compile_flags,
    annotate_consumer_reg_alloc,
    annotate_l2_hit_ratio,
    annotate_min_blocks_per_sm,
    annotate_pass_configs,
    annotate_producer_reg_dealloc,
    annotate_restrict_buffers,
    annotate_safe_value,
    disable_warp_group_reg_alloc,
    no_set_max_nreg,
    pdl_sync,
    pdl_trigger,
    use_swizzle,
    ws,
)
from tileops.language.launch import (
    Kernel,
    get_block_binding,
    get_block_bindings,
    get_thread_binding,
    get_thread_bindings,
    sync_threads,
    thread_binding,
)
from tileops.language.layouts import Fragment, Layout, annotate_layout
from tileops.language.loops import (
    Parallel,
    Pipelined,
    grid,
    serial,
    unroll,
    vectorized,
)
from tileops.language.mathematics import (
    acos,
    asin,
    atan,
    atan2,
    ceil,
    clz,
    copysign,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    fma,
    ieee_add,
    ieee_fdiv,
    ieee_fmaf,
    ieee_frcp,
    ieee_frsqrt,
    ieee_fsqrt,
    ieee_mul,
    ieee_sub,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    nearbyint,
    popcount,
    pow,
    pow_of_int,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from tileops.language.missing import unknown_construct as _unknown_construct
from tileops.language.missing import unmangled as _unmangled
from tileops.language.persistent import (
    Persistent,
    PersistentTileScheduler,
    loop_break,
)
from tileops.language.pointers import (
    make_tensor,
    ptr,
)
from tileops.language.prim_func import (
    prim_func,
)
from tileops.language.products import GemmWarpPolicy, dp4a, gemm
from tileops.language.reductions import (
    all_of,
    any_of,
    cummax,
    cummin,
    cumsum,
    finalize_reducer,
    reduce,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reduce_max,
    reduce_min,
    reduce_sum,
    reducer_init,
    reducer_update,
)
from tileops.language.unsupported import lookup as _lookup
from tileops.language.value import (
    Value,
    dtype,
)
from tileops.language.vectors import (
    Shuffle,
    abs2,
    add2,
    fma2,
    max2,
    min2,
    mul2,
    sub2,
)
from tileops.language.vectors import (
    VectorType as _VectorType,
)

# Other spellings of the same constructs. These shadow Python's builtins in this module only.
abs = absolute_value
min = minimum
max = maximum
cdiv = ceildiv
all = logical_and
any = logical_or
And = logical_and
Or = logical_or
Not = logical_not
print = print_values
c2d_im2col = im2col
Serial = serial
Unroll = unroll
parallel = Parallel
Vectorized = vectorized
WarpSpecialize = ws
PrimExpr = Value
# CUDA's fast forms: the accurate functions stand in, which is always within their error.
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
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint4 = dtype("uint4")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float16 = dtype("float16")
bfloat16 = dtype("bfloat16")
tfloat32 = dtype("tfloat32")
float32 = dtype("float32")
float64 = dtype("float64")
float8_e4m3fn = dtype("float8_e4m3fn")
float8_e4m3 = dtype("float8_e4m3")
float8_e5m2 = dtype("float8_e5m2")
float8_e8m0fnu = dtype("float8_e8m0fnu")
float4_e2m1fn = dtype("float4_e2m1fn")
short = dtype("short")
int = dtype("int")
uint = dtype("uint")
long = dtype("long")
half = dtype("half")
float = dtype("float")
double = dtype("double")

__all__ = [
    "And", "Cast", "DTypeVar", "Fragment", "FragmentBuffer", "GemmWarpPolicy", "Kernel", "Layout",
    "LocalBuffer", "Not", "Or", "Parallel", "Persistent", "PersistentTileScheduler", "Pipelined",
    "PrimExpr", "Ref", "Select", "Serial", "SharedBuffer", "Shuffle", "StridedTensor", "Tensor",
    "Unroll", "Var", "Vectorized", "WarpSpecialize", "__cos", "__exp", "__exp2", "__exp10", "__log",
    "__log2", "__log10", "__pow", "__sin", "__tan", "abs", "abs2", "acos", "add2", "align_up",
    "all", "all_of",
    "alloc_fragment", "alloc_global", "alloc_local", "alloc_reducer", "alloc_shared", "alloc_var",
    "annotate_compile_flags", "annotate_consumer_reg_alloc", "annotate_l2_hit_ratio",
    "annotate_layout", "annotate_min_blocks_per_sm", "annotate_pass_configs",
    "annotate_producer_reg_dealloc", "annotate_restrict_buffers", "annotate_safe_value", "any",
    "any_of", "asin", "assume", "atan", "atan2", "atomic_add", "atomic_addx2", "atomic_addx4",
    "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_store", "bfloat16",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bool", "c2d_im2col", "cast", "cdiv",
    "ceil", "ceildiv", "clamp", "clear", "clz", "const", "copy", "copysign", "cos", "cosh",
    "cummax", "cummin", "cumsum", "device_assert", "disable_warp_group_reg_alloc", "double",
    "dp4a", "dtype", "dynamic", "empty", "erf", "exp", "exp2", "exp10", "fill", "finalize_reducer",
    "float",
    "float4_e2m1fn", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float16",
    "float32", "float64", "floor", "floordiv", "floormod", "fma", "fma2", "fmod", "gemm",
    "get_block_binding", "get_block_bindings", "get_thread_binding", "get_thread_bindings", "grid",
    "half", "ieee_add", "ieee_fdiv", "ieee_fmaf", "ieee_frcp", "ieee_frsqrt", "ieee_fsqrt",
    "ieee_mul", "ieee_sub", "if_then_else", "im2col", "index_to_coordinates", "infinity", "int",
    "int4", "int8", "int16", "int32", "int64", "isfinite", "isinf", "isnan", "log", "log1p", "log2",
    "log10", "long", "loop_break", "macro", "make_tensor", "max", "max2", "max_value", "min",
    "min2", "min_value", "mul2", "nearbyint", "no_set_max_nreg", "parallel", "pdl_sync",
    "pdl_trigger", "popcount", "pow", "pow_of_int", "prim_func", "print", "ptr", "reduce",
    "reduce_absmax", "reduce_abssum", "reduce_bitand", "reduce_bitor", "reduce_bitxor",
    "reduce_max", "reduce_min", "reduce_sum", "reducer_init", "reducer_update", "reinterpret",
    "reshape", "round", "rsqrt", "serial", "shift_left", "shift_right", "short", "sigmoid", "sin",
    "sinh", "sqrt", "sub2", "symbolic", "sync_threads", "tan", "tanh", "tfloat32", "thread_binding",
    "transpose", "trunc", "truncdiv", "truncmod", "uint", "uint4", "uint8", "uint16", "uint32",
    "uint64", "unroll", "use_swizzle", "vectorized", "view", "ws",
]  # fmt: skip


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
