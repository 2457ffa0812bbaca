"""Pass configs: the keys that programs give, and how they enter a program's options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from tileops.errors import ArgumentError, ArgumentTypeError

COMPILE_FLAGS = "compile_flags"
# Set by tileops.option, not by programs: a debug build for the CPU, and the checks to insert
# ("bounds" or "bounds,nans").
DEBUG_CPU = "tileops.debug_cpu"
CHECKS = "tileops.checks"
# A dict of choices for the schedules of launches in roles (Hopper), and what each may be.
SCHEDULE = "tileops.schedule"
_SCHEDULE_CHOICES: Mapping[str, tuple[bool | int | str, ...]] = {
    "path": ("roles", "triton"),
    "groups": (1, 2, 3),
    "depth": (2, 3, 4, 5, 6, 7, 8),
    "persistent": (True, False),
    "overlap": (True, False),
    "segments": (True, False),
    "longest_first": (True, False),
    "staged": (True, False),
}


class PassConfigKey(str, Enum):
    """Keys of ``pass_configs``. Keys that name a mechanism tileops does not have are accepted.

    What changes code: fast math, the safe-memory checks, the index width, the register level of
    ptxas, device flags, the precision of float32 gemm, and the choices for schedules on Hopper.
    """

    TL_ENABLE_FAST_MATH = "tl.enable_fast_math"
    TL_GEMM_F32_PRECISION = "tl.gemm_f32_precision"
    TL_DISABLE_SAFE_MEMORY_ACCESS = "tl.disable_safe_memory_legalize"
    TL_CONFIG_INDEX_BITWIDTH = "tl.config_index_bitwidth"
    TL_DISABLE_THREAD_STORAGE_SYNC = "tl.disable_thread_storage_sync"
    TL_DEVICE_COMPILE_FLAGS = "tl.device_compile_flags"
    TL_PTXAS_REGISTER_USAGE_LEVEL = "tl.ptxas_register_usage_level"
    TL_DISABLE_WARP_SPECIALIZED = "tl.disable_warp_specialized"
    TL_DISABLE_TMA_LOWER = "tl.disable_tma_lower"
    TL_DISABLE_VECTORIZE_256 = "tl.disable_vectorize_256"
    TL_ENABLE_ASYNC_COPY = "tl.enable_async_copy"
    TL_ENABLE_LOWER_LDGSTG = "tl.enable_lower_ldgstg"
    TL_ENABLE_LOWER_LDGSTG_PREDICATED = "tl.enable_lower_ldgstg_predicated"
    TL_DISABLE_WGMMA = "tl.disable_wgmma"
    TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE = "tl.enable_aggressive_shared_memory_merge"
    TL_DISABLE_SHARED_MEMORY_REUSE = "tl.disable_shared_memory_reuse"
    TL_DISABLE_SHUFFLE_ELECT = "tl.disable_shuffle_elect"
    TL_DISABLE_LOOP_UNSWITCHING = "tl.disable_loop_unswitching"
    TL_LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE = "tl.loop_unswitching_allow_non_trivial_else"
    TL_IF_STMT_BINDING_INLINE_REPLAYABLE_BINDS = "tl.if_stmt_binding_inline_replayable_binds"
    TL_FORCE_LET_INLINE = "tl.force_let_inline"
    TL_STORAGE_REWRITE_DETECT_INPLACE = "tl.storage_rewrite_detect_inplace"
    TL_LAYOUT_COST_MODEL = "tl.layout_cost_model"
    TL_REDUCER_FORCE_BASELINE = "tl.reducer_force_baseline"
    TL_SIMPLIFY = "tl.Simplify"
    TL_DISABLE_BUFFER_INIT_CHECK = "tl.disable_buffer_init_check"
    TL_DISABLE_DATA_RACE_CHECK = "tl.disable_data_race_check"
    TL_DISABLE_PRELOWER_SEMANTIC_CHECK = "tl.disable_prelower_semantic_check"
    TL_DISABLE_OUT_OF_BOUND_WARNING = "tl.disable_out_of_bound_warning"
    TL_EMIT_LINE_DIRECTIVES = "tl.emit_line_directives"
    TL_AST_PRINT_ENABLE = "tl.ast_print_enable"
    TL_LAYOUT_VISUALIZATION_ENABLE = "tl.layout_visualization_enable"
    TL_LAYOUT_VISUALIZATION_FORMATS = "tl.layout_visualization_formats"
    TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS = "tl.debug_merge_shared_memory_allocations"
    TL_ENABLE_VECTORIZE_PLANNER_VERBOSE = "tl.enable_vectorize_planner_verbose"
    TL_ENABLE_REDUCER_PLAN_VERBOSE = "tl.enable_reducer_plan_verbose"
    TL_ENABLE_DUMP_IR = "tl.enable_dump_ir"
    TL_DUMP_IR_PATH = "tl.dump_ir_path"
    TL_PASS_PROFILE = "tl.pass_profile"
    TL_PASS_PROFILE_THRESHOLD_MS = "tl.pass_profile_threshold_ms"
    CUDA_KERNELS_OUTPUT_DIR = "cuda.kernels_output_dir"
    SCHEDULE = SCHEDULE
    TIR_NOALIAS = "tirx.noalias"
    TIR_SIMPLIFY = "tirx.Simplify"
    TIR_DISABLE_CSE = "tirx.disable_cse_tir"
    TIR_ENABLE_EQUIV_TERMS_IN_CSE = "tir.enable_equiv_terms_in_cse_tir"
    TIR_DISABLE_STORAGE_REWRITE = "tirx.disable_storage_rewrite"
    TIR_DISABLE_VECTORIZE = "tirx.disable_vectorize"
    TIR_USE_ASYNC_COPY = "tirx.use_async_copy"
    TIR_MERGE_STATIC_SMEM = "tirx.merge_static_smem"
    TIR_ADD_LOWER_PASS = "tirx.add_lower_pass"
    TIR_ENABLE_DEBUG = "tirx.enable_debug"


# Keys that change generated code here; the others are accepted and leave the program and its key
# alone.
EFFECTIVE = frozenset(
    key.value
    for key in (
        PassConfigKey.TL_ENABLE_FAST_MATH,
        PassConfigKey.TL_GEMM_F32_PRECISION,
        PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS,
        PassConfigKey.TL_CONFIG_INDEX_BITWIDTH,
        PassConfigKey.TL_DEVICE_COMPILE_FLAGS,
        PassConfigKey.TL_PTXAS_REGISTER_USAGE_LEVEL,
        PassConfigKey.TL_DISABLE_WARP_SPECIALIZED,
        PassConfigKey.TL_DISABLE_TMA_LOWER,
        PassConfigKey.SCHEDULE,
    )
)
_OFF = json.dumps(False)
_KNOWN = frozenset(key.value for key in PassConfigKey)
_PREFIXES = ("tl.Simplify.", "tirx.", "tir.")
_CHOICES = {PassConfigKey.TL_GEMM_F32_PRECISION.value: ("tf32", "tf32x3", "ieee")}


def options_of(
    pass_configs: Mapping[Any, object] | None, compile_flags: Sequence[str] | str | None = None
) -> tuple[tuple[str, str], ...]:
    """Pass configs and compile flags as the sorted (name, text) pairs of ``Program.options``.

    ArgumentError for an unknown key or value, ArgumentTypeError for arguments of other types. False
    stays, as "false": it overrides True where options are merged. None leaves the key out.
    """
    if not isinstance(pass_configs, Mapping | None):
        raise ArgumentTypeError(
            f"pass_configs: expected a mapping, got {type(pass_configs).__name__}"
        )
    if isinstance(compile_flags, bytes) or not isinstance(compile_flags, Iterable | None):
        raise ArgumentTypeError(
            f"compile_flags: expected text or texts, got {type(compile_flags).__name__}"
        )
    options: dict[str, str] = {}
    for key, value in (pass_configs or {}).items():
        name = _name_of(key)
        choices = _CHOICES.get(name)
        if choices is not None and value is not None and value not in choices:
            raise ArgumentError(
                f"pass_configs: {name} must be one of {', '.join(choices)}, got {value!r}"
            )
        if name == SCHEDULE and value is not None:
            value = _choices_for_schedules(value)
        if name in EFFECTIVE and value is not None:
            options[name] = value if isinstance(value, str) else json.dumps(value)
    flags = compile_flags.split() if isinstance(compile_flags, str) else list(compile_flags or ())
    if flags:
        options[COMPILE_FLAGS] = " ".join(flags)
    return tuple(sorted(options.items()))


def _choices_for_schedules(value: object) -> str:
    """The canonical text of the choices for schedules; no choice leaves the rest as it was."""
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(
            f"pass_configs: {SCHEDULE} must be a dict of choices, got {type(value).__name__}"
        )
    for name, choice in value.items():
        allowed = _SCHEDULE_CHOICES.get(name)
        if allowed is None:
            raise ArgumentError(
                f"pass_configs: {SCHEDULE}: unknown choice {name!r}; there are "
                f"{', '.join(_SCHEDULE_CHOICES)}"
            )
        if not any(choice == a and type(choice) is type(a) for a in allowed):
            listed = ", ".join(map(repr, allowed))
            raise ArgumentError(
                f"pass_configs: {SCHEDULE}: {name} must be one of {listed}, got {choice!r}"
            )
    return json.dumps(value, sort_keys=True) if value else _OFF


def merged(inner: Mapping[str, str], outer: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The options of a program: ``outer`` ones win, and what is false after that is left out."""
    options = {**inner, **outer}
    return tuple(sorted((k, v) for k, v in options.items() if v != _OFF))


def _name_of(key: object) -> str:
    if isinstance(key, PassConfigKey):
        return key.value
    if not isinstance(key, str):
        raise ArgumentTypeError(
            f"pass_configs: a key must be a PassConfigKey or its string, got {type(key).__name__}"
        )
    if key not in _KNOWN and not key.startswith(_PREFIXES):
        raise ArgumentError(
            f"pass_configs: unknown key {key!r}; the keys are those of tileops.PassConfigKey"
        )
    return key
