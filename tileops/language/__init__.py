"""Owns the tile language's public names: what users import as ``T``."""

from __future__ import annotations

from tileops.language.allocation import (
    alloc_fragment as alloc_fragment,
    alloc_global as alloc_global,
    alloc_local as alloc_local,
    alloc_reducer as alloc_reducer,
    alloc_shared as alloc_shared,
    alloc_var as alloc_var,
    empty as empty,
)
from tileops.language.annotations import (
    FragmentBuffer as FragmentBuffer,
    LocalBuffer as LocalBuffer,
    Ref as Ref,
    SharedBuffer as SharedBuffer,
    StridedTensor as StridedTensor,
    Tensor as Tensor,
)
from tileops.language.arithmetic import (
    Cast as Cast,
    Select as Select,
    absolute_value as abs,
    bitwise_and as bitwise_and,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_xor as bitwise_xor,
    cast as cast,
    ceildiv as cdiv,
    ceildiv as ceildiv,
    clamp as clamp,
    floordiv as floordiv,
    floormod as floormod,
    if_then_else as if_then_else,
    index_to_coordinates as index_to_coordinates,
    infinity as infinity,
    logical_and as And,
    logical_and as all,
    logical_not as Not,
    logical_or as Or,
    logical_or as any,
    max_value as max_value,
    maximum as max,
    min_value as min_value,
    minimum as min,
    reinterpret as reinterpret,
    shift_left as shift_left,
    shift_right as shift_right,
    truncdiv as truncdiv,
    truncmod as truncmod,
)
from tileops.language.atomics import (
    atomic_add as atomic_add,
    atomic_addx2 as atomic_addx2,
    atomic_addx4 as atomic_addx4,
    atomic_load as atomic_load,
    atomic_max as atomic_max,
    atomic_min as atomic_min,
    atomic_or as atomic_or,
    atomic_store as atomic_store,
)
from tileops.language.checks import (
    assume as assume,
    device_assert as device_assert,
    print_values as print,
)
from tileops.language.copies import (
    clear as clear,
    copy as copy,
    fill as fill,
    im2col as c2d_im2col,
    im2col as im2col,
    reshape as reshape,
    transpose as transpose,
    view as view,
)
from tileops.language.definitions import (
    const as const,
    dynamic as dynamic,
    macro as macro,
    prim_func as prim_func,
    symbolic as symbolic,
)
from tileops.language.gemm import (
    GemmWarpPolicy as GemmWarpPolicy,
    gemm as gemm,
)
from tileops.language.hints import (
    Layout as Layout,
    annotate_compile_flags as annotate_compile_flags,
    annotate_consumer_reg_alloc as annotate_consumer_reg_alloc,
    annotate_l2_hit_ratio as annotate_l2_hit_ratio,
    annotate_layout as annotate_layout,
    annotate_min_blocks_per_sm as annotate_min_blocks_per_sm,
    annotate_pass_configs as annotate_pass_configs,
    annotate_producer_reg_dealloc as annotate_producer_reg_dealloc,
    annotate_restrict_buffers as annotate_restrict_buffers,
    annotate_safe_value as annotate_safe_value,
    disable_warp_group_reg_alloc as disable_warp_group_reg_alloc,
    no_set_max_nreg as no_set_max_nreg,
    pdl_sync as pdl_sync,
    pdl_trigger as pdl_trigger,
    sync_threads as sync_threads,
    use_swizzle as use_swizzle,
)
from tileops.language.launch import (
    Kernel as Kernel,
    get_block_binding as get_block_binding,
    get_block_bindings as get_block_bindings,
)
from tileops.language.loops import (
    Parallel as Parallel,
    Pipelined as Pipelined,
    grid as grid,
    serial as Serial,
    serial as serial,
    unroll as Unroll,
    unroll as unroll,
    vectorized as Vectorized,
    vectorized as vectorized,
)
from tileops.language.mathematics import (
    acos as acos,
    asin as asin,
    atan as atan,
    atan2 as atan2,
    ceil as ceil,
    clz as clz,
    copysign as copysign,
    cos as cos,
    cosh as cosh,
    erf as erf,
    exp as __exp,
    exp as exp,
    exp2 as __exp2,
    exp2 as exp2,
    exp10 as __exp10,
    exp10 as exp10,
    floor as floor,
    fma as fma,
    ieee_add as ieee_add,
    ieee_fdiv as ieee_fdiv,
    ieee_fmaf as ieee_fmaf,
    ieee_frcp as ieee_frcp,
    ieee_frsqrt as ieee_frsqrt,
    ieee_fsqrt as ieee_fsqrt,
    ieee_mul as ieee_mul,
    ieee_sub as ieee_sub,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    log as __log,
    log as log,
    log1p as log1p,
    log2 as __log2,
    log2 as log2,
    log10 as __log10,
    log10 as log10,
    nearbyint as nearbyint,
    popcount as popcount,
    pow as __pow,
    pow as pow,
    pow_of_int as pow_of_int,
    round as round,
    rsqrt as rsqrt,
    sigmoid as sigmoid,
    sin as __sin,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    tan as __tan,
    tan as tan,
    tanh as tanh,
    trunc as trunc,
)
from tileops.language.mathematics import cos as __cos
from tileops.language.reducers import (
    all_of as all_of,
    any_of as any_of,
    finalize_reducer as finalize_reducer,
    reducer_init as reducer_init,
    reducer_update as reducer_update,
)
from tileops.language.reductions import (
    cummax as cummax,
    cumsum as cumsum,
    reduce as reduce,
    reduce_absmax as reduce_absmax,
    reduce_abssum as reduce_abssum,
    reduce_bitand as reduce_bitand,
    reduce_bitor as reduce_bitor,
    reduce_bitxor as reduce_bitxor,
    reduce_max as reduce_max,
    reduce_min as reduce_min,
    reduce_sum as reduce_sum,
)
from tileops.language.unsupported import UnsupportedName as _UnsupportedName
from tileops.language.unsupported import lookup as _lookup
from tileops.language.value import Value as PrimExpr
from tileops.language.value import Value as Var
from tileops.language.value import dtype as dtype

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


def __getattr__(name: str) -> _UnsupportedName:
    """Names of the language that tileops does not have; using what this gives raises an error."""
    found = _lookup(name)
    if found is None:
        raise AttributeError(f"the tile language has no name {name!r}")
    return found
