"""The small modules that programs import beside the language: they exist and do what they say."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tileops import layout, settings, testing
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.frontend import trace
from tileops.pass_configs import merged, options_of

ROOT = Path(__file__).parents[2]

_KEY_TEXT = """
    tl.enable_fast_math tl.disable_safe_memory_legalize tl.config_index_bitwidth
    tl.disable_thread_storage_sync tl.device_compile_flags tirx.noalias
    tl.disable_warp_specialized tl.disable_tma_lower tl.ptxas_register_usage_level
    tl.disable_vectorize_256 tl.enable_async_copy tl.enable_lower_ldgstg
    tl.enable_lower_ldgstg_predicated tl.disable_wgmma tl.enable_aggressive_shared_memory_merge
    tl.disable_shared_memory_reuse tl.disable_shuffle_elect tl.disable_loop_unswitching
    tl.loop_unswitching_allow_non_trivial_else tl.if_stmt_binding_inline_replayable_binds
    tl.force_let_inline tl.storage_rewrite_detect_inplace tl.layout_cost_model
    tl.reducer_force_baseline tl.Simplify tirx.Simplify tirx.disable_cse_tir
    tir.enable_equiv_terms_in_cse_tir tirx.disable_storage_rewrite tirx.disable_vectorize
    tirx.use_async_copy tirx.merge_static_smem tirx.add_lower_pass
    tl.disable_buffer_init_check tl.disable_data_race_check tl.disable_prelower_semantic_check
    tl.disable_out_of_bound_warning tl.emit_line_directives tl.ast_print_enable
    tl.layout_visualization_enable tl.layout_visualization_formats
    tl.debug_merge_shared_memory_allocations tl.enable_vectorize_planner_verbose
    tl.enable_reducer_plan_verbose tirx.enable_debug tl.enable_dump_ir tl.dump_ir_path
    tl.pass_profile tl.pass_profile_threshold_ms cuda.kernels_output_dir
    tl.gemm_f32_precision
"""
KEYS = _KEY_TEXT.split()
VALUES = {"tl.gemm_f32_precision": "ieee", "tl.device_compile_flags": "-lineinfo"}


# -- pass configs ------------------------------------------------------------------------------
@pytest.mark.parametrize("key", KEYS)
def test_every_pass_config_key_is_accepted_as_text_and_as_a_member(key: str) -> None:
    member = next(m for m in tileops.PassConfigKey if m.value == key)
    value = VALUES.get(key, True)
    assert options_of({member: value}) == options_of({key: value})


def _with_configs(configs: dict) -> tuple[tuple[str, str], ...]:
    def program(A, configs):
        A: T.Tensor((64,), T.float32)
        T.annotate_pass_configs(configs)
        with T.Kernel(1):
            T.clear(A)

    return trace(program, name="program", static={"configs": configs}, consts={}).options


def test_configs_of_the_body_are_those_of_the_decorator() -> None:
    configs = {
        tileops.PassConfigKey.TL_ENABLE_FAST_MATH: True, "tl.gemm_f32_precision": "ieee",
        "tl.disable_tma_lower": False, "tl.pass_profile": True,
    }  # fmt: skip
    # What is off is left out, once the decorator's have overridden the body's.
    assert _with_configs(configs) == merged({}, dict(options_of(configs)))
    assert dict(_with_configs(configs)).keys() == {"tl.enable_fast_math", "tl.gemm_f32_precision"}


def test_wrong_configs_of_the_body_are_errors_with_a_place() -> None:
    with pytest.raises(ProgramValueError, match=r"unknown key 'tl\.nonsense'") as unknown:
        _with_configs({"tl.nonsense": 1})
    assert f"{Path(__file__).name}:" in str(unknown.value)
    with pytest.raises(ProgramValueError, match="must be one of"):
        _with_configs({"tl.gemm_f32_precision": "fp8"})


def test_the_key_class_is_found_where_programs_look() -> None:
    from tileops.transform import PassConfigKey

    assert PassConfigKey is tileops.PassConfigKey
    assert tileops.transform.PassConfigKey.TL_ENABLE_FAST_MATH == "tl.enable_fast_math"


# -- layouts -----------------------------------------------------------------------------------
def test_layouts_are_hints_that_change_no_program() -> None:
    def program(A, hints: bool):
        A: T.Tensor((64, 64), T.float16)
        with T.Kernel(1):
            s = T.alloc_shared((64, 64), T.float16)
            f = T.alloc_fragment((64, 64), T.float16)
            if hints:
                T.annotate_layout(
                    {
                        s: layout.make_swizzled_layout(s),
                        f: T.Fragment(f.shape, forward_fn=lambda i, j: (i, j)),
                    }
                )
                T.annotate_layout({s: T.Layout((64, 64), lambda i, j: (j, i))})
                T.annotate_layout({s: layout.make_linear_layout(s)})
            T.copy(A, s)
            T.copy(s, f)
            T.copy(f, A)

    from tileops.ir.printer import print_program

    texts = {
        print_program(trace(program, name="program", static={"hints": hints}, consts={}))
        for hints in (True, False)
    }
    assert len(texts) == 1


OF_TILES = {
    "make_swizzled_layout": (),
    "make_full_bank_swizzled_layout": (),
    "make_half_bank_swizzled_layout": (),
    "make_quarter_bank_swizzled_layout": (),
    "make_volta_swizzled_layout": (False, True),
    "make_wgmma_swizzled_layout": (64, False),
    "make_tcgen05mma_swizzled_layout": (64, False),
    "make_linear_layout": (),
    "make_fully_replicated_layout_fragment": (128,),
}


@pytest.mark.parametrize("name", OF_TILES)
def test_layouts_have_the_shape_of_their_tile(name: str) -> None:
    make = getattr(layout, name)
    assert make((8, 16), *OF_TILES[name]).shape == (8, 16)
    with pytest.raises(ArgumentTypeError, match=name):
        make(3, *OF_TILES[name])

    def program(A):
        A: T.Tensor((8, 16), T.float16)
        with T.Kernel(1):
            s = T.alloc_shared((8, 16), T.float16)
            T.annotate_layout({s: make(s, *OF_TILES[name])})
            T.copy(A, s)

    assert trace(program, name="program", static={}, consts={}).launches


def test_fragments_of_a_warp_have_two_elements_in_each_thread() -> None:
    for make in (layout.make_gemm_fragment_8x8, layout.make_gemm_fragment_8x8_transposed):
        fragment = make()
        places = {
            (fragment.forward_thread_fn(i, j), fragment.forward_index_fn(i, j))
            for i in range(8)
            for j in range(8)
        }
        assert places == {(thread, element) for thread in range(32) for element in range(2)}
    assert layout.make_gemm_fragment_8x8().forward_thread_fn(1, 2) == 5


def test_layouts_are_the_classes_of_the_language() -> None:
    assert layout.Layout is T.Layout
    assert layout.Fragment is T.Fragment


def test_a_fragment_layout_of_a_tensor_is_refused() -> None:
    def program(A):
        A: T.Tensor((64, 64), T.float16)
        with T.Kernel(1):
            T.annotate_layout({A: T.Fragment((64, 64), forward_fn=lambda i, j: (i, j))})

    with pytest.raises(UnsupportedConstructError, match="names threads"):
        trace(program, name="program", static={}, consts={})


# -- names -------------------------------------------------------------------------------------
def test_where_programs_look_for_names() -> None:
    from tileops.language.fp8 import determine_fp8_type
    from tileops.profiler import do_bench

    assert do_bench(lambda: None, n_warmup=1, n_repeat=1) >= 0
    assert determine_fp8_type() == "float8_e4m3fn"
    assert determine_fp8_type("e5m2") == T.float8_e5m2
    assert tileops.GemmWarpPolicy is T.GemmWarpPolicy
    assert [(p.name, int(p)) for p in T.GemmWarpPolicy] == [
        ("Square", 0), ("FullRow", 1), ("FullCol", 2),
    ]  # fmt: skip


def test_the_cache_is_switched_off_and_on() -> None:
    before = settings.current().cache_disable
    try:
        tileops.disable_cache()
        assert not tileops.is_cache_enabled()
        tileops.enable_cache()
        assert tileops.is_cache_enabled()
    finally:
        tileops.option.cache_disable(before)


# -- testing -----------------------------------------------------------------------------------
def test_a_share_of_outliers_is_allowed() -> None:
    a, b = torch.zeros(1000), torch.zeros(1000)
    a[:10] = 1.0
    testing.torch_assert_close(a, b, max_mismatched_ratio=0.01)
    with pytest.raises(AssertionError, match="10 of 1000 elements differ"):
        testing.torch_assert_close(a, b, max_mismatched_ratio=0.009)


def test_tolerances_add_up() -> None:
    b = torch.full((4,), 100.0)
    testing.torch_assert_close(b + 1.05, b, rtol=0.01, atol=0.1, max_mismatched_ratio=0)
    with pytest.raises(AssertionError):
        testing.torch_assert_close(b + 1.2, b, rtol=0.01, atol=0.1, max_mismatched_ratio=0)


def test_shapes_dtypes_and_nan() -> None:
    a, nan = torch.zeros(4), torch.full((4,), torch.nan)
    with pytest.raises(AssertionError, match="shape"):
        testing.torch_assert_close(a, torch.zeros(5))
    with pytest.raises(AssertionError, match="dtype"):
        testing.torch_assert_close(a, a.half())
    testing.torch_assert_close(a, a.half(), check_dtype=False)
    testing.torch_assert_close(nan, nan)
    with pytest.raises(AssertionError, match="mine against theirs"):
        testing.torch_assert_close(nan, nan, equal_nan=False, base_name="mine", ref_name="theirs")
    with pytest.raises(ArgumentTypeError, match="expected tensors, got list"):
        testing.torch_assert_close(a, [0.0])


def test_seeds_repeat_every_generator() -> None:
    import numpy as np

    def draw() -> tuple[float, float, float]:
        testing.set_random_seed(7)
        return random.random(), torch.rand(1).item(), float(np.random.rand())

    assert draw() == draw()


@pytest.mark.parametrize("mode", ["ge", "gt", "le", "lt", "eq"])
def test_conditions_of_the_device(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    expected = {
        "ge": (True, True, False), "gt": (True, False, False), "le": (False, True, True),
        "lt": (False, False, True), "eq": (False, True, False),
    }[mode]  # fmt: skip
    decide = getattr(testing, f"requires_cuda_compute_version_{mode}")
    runs = tuple(not _skipped(decide(*version)) for version in ((8, 0), (9, 0), (9, 1)))
    assert runs == expected


def test_conditions_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _skipped(testing.requires_cuda)
    assert _skipped(testing.requires_rocm)
    assert _skipped(testing.requires_cuda_compute_version(8))
    assert _skipped(testing.requires_package("no_such_package"))
    assert not _skipped(testing.requires_package("torch"))
    with pytest.raises(ArgumentError, match="mode"):
        testing.requires_cuda_compute_version(8, 0, "ne")


def _skipped(decorate: object) -> bool:
    def test() -> None:
        """A test that would pass."""

    marked = decorate(test)
    (mark,) = marked.pytestmark
    return bool(mark.args[0])


def test_a_test_file_runs_itself(tmp_path: Path) -> None:
    file = tmp_path / "test_itself.py"
    file.write_text(
        "import tileops.testing\n\n"
        "@tileops.testing.requires_package('no_such_package')\n"
        "def test_skipped():\n    assert False\n\n"
        "def test_passes():\n    pass\n\n"
        "if __name__ == '__main__':\n    tileops.testing.main()\n"
    )
    done = subprocess.run(
        [sys.executable, str(file), "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, env={**settings.child_environment({"PYTHONPATH": str(ROOT)})},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout


def test_the_helpers_import_neither_triton_nor_pytest() -> None:
    text = (
        "import sys; before = set(sys.modules); import tileops.testing; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before} & {'triton', 'pytest'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


# -- integer arithmetic of host code --------------------------------------------------------------
@pytest.mark.parametrize(("a", "b", "quotient"), [(7, 2, 4), (8, 2, 4), (0, 3, 0), (-7, 2, -3)])
def test_cdiv_rounds_up(a: int, b: int, quotient: int) -> None:
    assert tileops.cdiv(a, b) == tileops.math.cdiv(a, b) == quotient


def test_cdiv_by_zero_is_named() -> None:
    with pytest.raises(ArgumentError, match="divisor that is not zero"):
        tileops.cdiv(3, 0)


@pytest.mark.parametrize(
    ("n", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (129, 256), (2**40 + 1, 2**41)]
)
def test_next_power_of_2(n: int, power: int) -> None:
    assert tileops.next_power_of_2(n) == power
