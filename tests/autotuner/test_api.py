"""The tuner's interface as it is documented: names, defaults, files, and programs in every style."""

from __future__ import annotations

import inspect
import json
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import FakeTimer, fresh_const, fresh_lazy
from tileops.autotuner import param
from tileops.autotuner.param import AutotuneResult, CompileArgs, ProfileArgs
from tileops.errors import ArgumentError, CacheError
from tileops.jit.tuned import TunedProgram
from tileops.profiler import Profiler, TensorSupplyType

pytestmark = pytest.mark.usefixtures("tuning_cache")

TIMES = {8: 3.0, 16: 2.0, 32: 1.0, 64: 4.0}
SPACE = [{"block": 8}, {"block": 32}]


# -- names and defaults ----------------------------------------------------------------------------
AUTOTUNE = {
    "warmup": 25, "rep": 100, "timeout": 100, "supply_type": TensorSupplyType.Auto, "ref_prog": None,
    "supply_prog": None, "rtol": 1e-2, "atol": 1e-2, "max_mismatched_ratio": 0.01,
    "skip_check": False, "manual_check_prog": None, "cache_input_tensors": False,
    "do_not_specialize": None, "early_stop": False, "early_stop_factor": 2.0, "timer": None,
}  # fmt: skip
RUN = (
    "warmup", "rep", "timeout", "use_pipeline", "enable_grouped_compile", "group_compile_size",
    "benchmark_devices", "benchmark_multi_gpu", "early_stop", "early_stop_factor",
)  # fmt: skip
COMPILE = {
    "out_idx": None, "execution_backend": "auto", "target": "auto", "target_host": None,
    "verbose": False, "pass_configs": None,
}  # fmt: skip
PROFILE = {
    "warmup": 25, "rep": 100, "timeout": 30, "backend": "event", "supply_type": TensorSupplyType.Auto,
    "ref_prog": None, "supply_prog": None, "rtol": 0.01, "atol": 0.01, "max_mismatched_ratio": 0.01,
    "skip_check": False, "manual_check_prog": None, "cache_input_tensors": True,
}  # fmt: skip
BENCH = {
    "func": None, "warmup": 25, "rep": 100, "n_warmup": 0, "n_repeat": 0, "input_tensors": None,
    "backend": "event", "quantiles": None, "return_mode": "mean",
    "dynamic_symbolic_constraints": None, "device": None, "early_stop_baseline": None,
}  # fmt: skip
PATHS = {
    "BEST_CONFIG_PATH": "best_config.json", "LATENCY_PATH": "latency.json",
    "OUT_IDX_PATH": "out_idx.json", "FUNCTION_PATH": "function.json", "PARAMS_PATH": "params.json",
    "DEVICE_KERNEL_PATH": "device_kernel.cu", "HOST_KERNEL_PATH": "host_kernel.cu",
    "EXECUTABLE_PATH": "executable.so", "KERNEL_LIB_PATH": "kernel_lib.so",
    "KERNEL_CUBIN_PATH": "kernel.cubin", "KERNEL_PY_PATH": "kernel.py",
}  # fmt: skip


def defaults(function: Any) -> dict[str, Any]:
    found = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in found if p.name != "self"}


def test_arguments_have_their_names_and_defaults() -> None:
    given = defaults(tileops.autotune)
    assert {name: given[name] for name in AUTOTUNE} == AUTOTUNE
    parameters = inspect.signature(tileops.AutoTuner.run).parameters
    assert tuple(parameters)[1 : 1 + len(RUN)] == RUN  # by position too
    assert parameters["timer"].kind == inspect.Parameter.KEYWORD_ONLY
    assert {f.name: f.default for f in fields(CompileArgs)} == COMPILE
    assert {f.name: f.default for f in fields(ProfileArgs)} == PROFILE
    assert [f.name for f in fields(AutotuneResult)] == [
        "latency", "config", "ref_latency", "libcode", "func", "kernel",
    ]  # fmt: skip
    assert defaults(Profiler.do_bench) == BENCH
    assert list(inspect.signature(Profiler).parameters)[:3] == [
        "params",
        "result_idx",
        "supply_type",
    ]
    assert {name: getattr(param, name) for name in PATHS} == PATHS
    assert [(t.name, t.value) for t in TensorSupplyType] == [
        ("Integer", 1), ("Uniform", 2), ("Normal", 3), ("Randn", 4), ("Zero", 5), ("One", 6), ("Auto", 7),
    ]  # fmt: skip


def test_arguments_are_values_that_hash() -> None:
    assert hash(CompileArgs(pass_configs={"a": 1})) == hash(CompileArgs(pass_configs={"a": 1}))
    assert hash(CompileArgs(out_idx=[1])) != hash(CompileArgs(out_idx=[2]))
    assert hash(ProfileArgs(ref_prog=print)) == hash(ProfileArgs(ref_prog=print))
    assert hash(ProfileArgs(rep=1)) != hash(ProfileArgs(rep=2))
    assert hash(AutotuneResult(1.0, {"b": [1]})) == hash(AutotuneResult(1.0, {"b": [1]}))


def test_the_names_can_be_imported_from_where_programs_have_them() -> None:
    from tileops.autotuner import AutoTuner, autotune, set_autotune_inputs
    from tileops.autotuner import TensorSupplyType as Supply

    assert (AutoTuner, autotune) == (tileops.AutoTuner, tileops.autotune)
    assert (set_autotune_inputs, Supply) == (tileops.set_autotune_inputs, TensorSupplyType)


# -- the decorator ---------------------------------------------------------------------------------
def test_a_function_of_configs_gets_the_arguments_of_the_call() -> None:
    seen: list[Any] = []

    def configs(*arguments: Any) -> list[dict[str, int]]:
        seen.append(arguments)
        return SPACE

    program = tileops.autotune(configs=configs, timer=FakeTimer(TIMES))(fresh_const())
    program(torch.randn(100))
    assert seen[0] == (("tensor", "float32", (100,), (1,)),)
    lazy = tileops.autotune(configs=configs, timer=FakeTimer(TIMES))(fresh_lazy())
    assert lazy(64).config == {"block": 32}
    assert seen[-1] == (64,)
    assert lazy(64, block=8).config is None

    @tileops.jit(out_idx=[-1], name="tuned_lazy_default")
    def with_default(N, block=16):  # type: ignore[no-untyped-def]
        return fresh_lazy().func(N, block)

    timer = FakeTimer(TIMES)
    lazy = tileops.autotune(configs=lambda: SPACE, timer=timer)(with_default)
    assert lazy(65).config == {"block": 32}
    assert sorted(timer.calls) == [8, 16, 32]


@pytest.mark.parametrize("default", [(), (None,)])
def test_a_function_of_configs_gives_values_to_parameters_without_one(default: Any) -> None:
    def double(A, scale, block):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * scale
        return B

    double.__defaults__ = default or None
    timer = FakeTimer(TIMES)
    a = torch.randn(100)
    jitted = tileops.jit(name="tuned_double_open")(double)
    program = tileops.autotune(configs=lambda *given: SPACE, timer=timer)(jitted)
    assert torch.equal(program(a, 3, block=8), a * 3)
    assert timer.calls == []
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(torch.equal(program(a, scale=3), a * 3)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 3
    assert sorted(timer.calls) == sorted({b["block"] for b in SPACE})
    assert program.compile(a, scale=3).config == {"block": 32}
    assert torch.equal(program(a, 3, block=16), a * 3)
    compiled = torch.compile(lambda x: program(x, scale=3), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a), a * 3)


def test_configs_may_hold_pass_configs() -> None:
    options: list[Any] = []

    def timer(config: Any, kernel: Any, inputs: Any) -> float:
        options.append(dict(kernel.prim_func.options))
        return 1.0 if "pass_configs" in config else 2.0

    fast = {"block": 32, "pass_configs": {"tl.enable_fast_math": True}}
    program = tileops.autotune(configs=[{"block": 8}, fast], timer=timer)(fresh_const())
    a = torch.randn(100)
    assert torch.equal(program(a), a * 2)
    assert program.compile(a).config == fast
    assert sum(bool(o) for o in options) == 1


def test_what_is_not_specialised_shares_a_tuning() -> None:
    timer = FakeTimer(TIMES)
    program = tileops.autotune(configs=SPACE, timer=timer, do_not_specialize=["N"])(fresh_const())
    for size in (100, 101, 4000):
        a = torch.randn(size)
        assert torch.equal(program(a), a * 2)
    assert sorted(timer.calls) == [8, 16, 32]
    again = FakeTimer(TIMES)
    program = tileops.autotune(configs=SPACE, timer=again, do_not_specialize=["N"])(fresh_const())
    program(torch.randn(77))  # another process, another size
    assert again.calls == []
    # Kernels of a lazy program are made for their own arguments, with the config that is shared.
    timer = FakeTimer(TIMES)
    lazy = tileops.autotune(configs=SPACE, timer=timer, do_not_specialize=("N",))(fresh_lazy())
    for size in (100, 101):
        a = torch.randn(size)
        assert torch.equal(lazy(size)(a), a * 2)
        assert lazy(size).config == {"block": 32}
    assert sorted(timer.calls) == [8, 32]


def test_given_inputs_hold_for_one_thread_and_nest() -> None:
    seen: list[float] = []

    def timer(config: Any, kernel: Any, inputs: Any) -> float:
        seen.append(float(inputs[0][0]))
        return 1.0

    program = tileops.autotune(configs=[{"block": 8}], timer=timer)(fresh_const())

    def call(size: int) -> list[float]:
        seen.clear()
        program(torch.zeros(size))
        return sorted(set(seen))

    with tileops.set_autotune_inputs([torch.full((10,), 1.0)]):
        with tileops.set_autotune_inputs(torch.full((11,), 2.0)):
            assert call(11) == [2.0]
        assert call(10) == [1.0]
        thread = threading.Thread(target=lambda: results.append(call(12)))
        results: list[list[float]] = []
        thread.start()
        thread.join()
        assert results == [[0.0]]
    assert call(13) == [0.0]


@pytest.mark.parametrize(
    ("supply", "check"),
    [
        (TensorSupplyType.Zero, lambda x: bool((x == 0).all())),
        (TensorSupplyType.One, lambda x: bool((x == 1).all())),
        (TensorSupplyType.Integer, lambda x: bool((x == x.round()).all())),
        (TensorSupplyType.Uniform, lambda x: bool((x.abs() <= 1).all())),
    ],
)
def test_a_supply_type_fills_what_no_call_gives(supply: TensorSupplyType, check: Any) -> None:
    seen: list[torch.Tensor] = []

    def timer(config: Any, kernel: Any, inputs: Any) -> float:
        seen.append(inputs[0])
        return 1.0

    program = tileops.autotune(configs=SPACE, timer=timer, supply_type=supply)(fresh_const())
    program.compile(N=64)
    assert seen
    assert all(check(x) for x in seen)


def test_the_disabled_results_of_tunings_are_not_kept(
    tuning_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEOPS_TUNE_CACHE_DISABLE", "1")
    a = torch.randn(71)
    timer = FakeTimer(TIMES)
    tileops.autotune(configs=SPACE, timer=timer)(fresh_const())(a)
    assert len(timer.calls) == 3
    assert not list(tuning_cache.rglob("tuning"))
    assert list(tuning_cache.glob("programs/*"))  # compiled programs are


# -- programs in every style -----------------------------------------------------------------------
def test_a_lazy_matmul_by_positional_sizes() -> None:
    @tileops.autotune(
        configs=[{"block_M": 16, "block_N": 16}, {"block_M": 32, "block_N": 32}],
        timer=FakeTimer({16: 2.0, 32: 1.0}, "block_M"),
        ref_prog=lambda a, b: a @ b,
    )
    @tileops.jit(out_idx=[-1], name="tuned_lazy_matmul")
    def matmul(M, N, K, block_M, block_N, block_K=32):  # type: ignore[no-untyped-def]
        @T.prim_func
        def kernel(  # type: ignore[no-untyped-def]
            A: T.Tensor((M, K), T.float32),
            B: T.Tensor((K, N), T.float32),
            C: T.Tensor((M, N), T.float32),
        ):
            with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
                A_s = T.alloc_shared((block_M, block_K), T.float32)
                B_s = T.alloc_shared((block_K, block_N), T.float32)
                acc = T.alloc_fragment((block_M, block_N), T.float32)
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                    T.copy(A[by * block_M, k * block_K], A_s)
                    T.copy(B[k * block_K, bx * block_N], B_s)
                    T.gemm(A_s, B_s, acc)
                T.copy(acc, C[by * block_M, bx * block_N])

        return kernel

    assert isinstance(matmul, TunedProgram)
    kernel = matmul(64, 48, 80)
    assert (kernel.config, kernel.latency) == ({"block_M": 32, "block_N": 32}, 1.0)
    a, b = torch.randn(64, 80), torch.randn(80, 48)
    torch.testing.assert_close(kernel(a, b), a @ b, atol=1e-4, rtol=1e-4)
    assert matmul(64, 48, 80) is kernel
    explicit = matmul(64, 48, 80, 16, 16)
    assert explicit.config is None


def test_an_eager_gemm_that_writes_into_its_argument() -> None:
    @tileops.autotune(
        configs={"block_M": [16, 32]}, timer=FakeTimer({16: 1.0, 32: 2.0, 64: 3.0}, "block_M")
    )
    @tileops.jit(name="tuned_eager_gemm")
    def gemm(A, B, C, block_M: int = 64, dtype=T.float32):  # type: ignore[no-untyped-def]
        M, N, K = T.const("M N K")
        A: T.Tensor[[M, K], dtype]
        B: T.Tensor[[K, N], dtype]
        C: T.Tensor[[M, N], dtype]
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            A_s = T.alloc_shared((block_M, K), dtype)
            B_s = T.alloc_shared((K, N), dtype)
            acc = T.alloc_fragment((block_M, N), T.float32)
            T.clear(acc)
            T.copy(A[bx * block_M, 0], A_s)
            T.copy(B[0, 0], B_s)
            T.gemm(A_s, B_s, acc)
            T.copy(acc, C[bx * block_M, 0])

    a, b, c = torch.randn(64, 32), torch.randn(32, 16), torch.zeros(64, 16)
    gemm(a, b, c)
    torch.testing.assert_close(c, a @ b, atol=1e-4, rtol=1e-4)
    kernel = gemm.compile(M=64, N=16, K=32)
    assert kernel.config == {"block_M": 16}


# -- one kernel by hand ----------------------------------------------------------------------------
def test_the_tuner_of_a_plain_function(tmp_path: Path) -> None:
    def doubled(block: int = 16) -> Any:
        @T.prim_func
        def main(A: T.Tensor((64,), T.float32), B: T.Tensor((64,), T.float32)):  # type: ignore[no-untyped-def]
            with T.Kernel(T.ceildiv(64, block), threads=128) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * 2

        return main

    tuner = (
        tileops.AutoTuner.from_kernel(kernel=doubled, configs=SPACE)
        .set_compile_args([-1], "auto", "auto", None, False, {"tl.enable_fast_math": True})
        .set_profile_args(warmup=1, rep=2, timeout=60, supply_type=TensorSupplyType.One,
                          ref_prog=lambda a: a * 2, backend="event", cache_input_tensors=True)
    )  # fmt: skip
    timer = FakeTimer(TIMES)
    result = tuner.run(3, 4, 50, True, True, 2, None, False, True, 3.0, timer=timer)
    assert (result.config, result.latency) == ({"block": 32}, 1.0)
    assert sorted(timer.calls) == [8, 16, 32]
    assert result.kernel is not None
    assert result.libcode == result.kernel.get_kernel_source()
    assert result.func is result.kernel.prim_func
    assert dict(result.kernel.prim_func.options)
    a = torch.randn(64)
    assert torch.equal(result.kernel(a), a * 2)
    assert tuner.run(timer=timer).config == {"block": 32}
    assert len(timer.calls) == 3


def test_results_on_disk_have_their_file_names_and_hold_no_pickle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tileops.AutoTuner.from_kernel(fresh_const(), SPACE).run(
        timer=FakeTimer(TIMES), kwargs={"N": 64}
    )
    result.save_to_disk(tmp_path / "result", verbose=True)
    names = {path.name for path in (tmp_path / "result").iterdir()}
    wanted = {PATHS[n] for n in PATHS} - {"executable.so", "kernel.cubin", "kernel.py"}  # a CPU's
    assert names == wanted
    said = capsys.readouterr().err
    assert all(name in said for name in wanted)
    for name in (
        "best_config.json",
        "latency.json",
        "out_idx.json",
        "function.json",
        "params.json",
    ):
        json.loads((tmp_path / "result" / name).read_text())
    loaded = AutotuneResult.load_from_disk(tmp_path / "result", CompileArgs())
    assert (loaded.config, loaded.latency) == (result.config, result.latency)
    assert hash(loaded) == hash(result)
    a = torch.randn(64)
    assert loaded.kernel is not None
    assert torch.equal(loaded.kernel(a), a * 2)
    for name in ("function.json", "best_config.json", "latency.json"):
        text = (tmp_path / "result" / name).read_text()
        for bad in ("", "{", "[]", "3", text.replace("{", "[", 1)):
            (tmp_path / "result" / name).write_text(bad)
            with pytest.raises(CacheError, match="holds no tuning result"):
                AutotuneResult.load_from_disk(tmp_path / "result", CompileArgs())
        (tmp_path / "result" / name).write_text(text)
    with pytest.raises(ArgumentError, match="holds no kernel"):
        AutotuneResult(1.0, {}).save_to_disk(tmp_path / "none")


def test_compile_args_compile_a_program() -> None:
    @T.prim_func
    def main(A: T.Tensor((32,), T.float32), B: T.Tensor((32,), T.float32)):  # type: ignore[no-untyped-def]
        with T.Kernel(1, threads=128):
            for i in T.Parallel(32):
                B[i] = A[i] + 1

    kernel = CompileArgs(out_idx=[1], target="cpu").compile_program(main)
    a = torch.randn(32)
    assert torch.equal(kernel(a), a + 1)


def test_a_profiler_without_a_kernel_times_functions() -> None:
    kernel = fresh_const().compile(N=64)
    profiler = Profiler(kernel.params, kernel.out_idx, TensorSupplyType.Auto, device="cpu")
    assert profiler.do_bench(lambda a: a * 2, n_warmup=1, n_repeat=2) > 0
    with pytest.raises(ArgumentError, match="has no kernel"):
        profiler.run_once()
    assert profiler.with_default_adapter(kernel) is profiler
    profiler.assert_allclose(lambda a: a * 2)
    assert torch.is_tensor(profiler.run_once())
