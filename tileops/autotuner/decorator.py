"""What users call: ``autotune`` above ``jit``, and ``AutoTuner``, which tunes one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import FunctionType
from typing import Any

from tileops.autotuner.param import (
    POWERS_OF_TWO,
    AutotuneResult,
    Buckets,
    CompileArgs,
    ProfileArgs,
    Timer,
    TuningOptions,
)
from tileops.autotuner.spaces import Configs
from tileops.autotuner.tuner import Tuner
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.jit.definition import Definition
from tileops.jit.entry_points import jit
from tileops.jit.impl import JITImpl
from tileops.jit.provider import state_of
from tileops.jit.tuned import TunedProgram, with_fallback
from tileops.profiler import TensorSupplyType


def autotune(
    func: Callable[..., Any] | None = None,
    /,
    *,
    configs: Configs = "auto",
    warmup: int = 25,
    rep: int = 100,
    timeout: float = 100,
    supply_type: TensorSupplyType = TensorSupplyType.Auto,
    ref_prog: Callable[..., Any] | None = None,
    supply_prog: Callable[..., Any] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    skip_check: bool = False,
    manual_check_prog: Callable[..., Any] | None = None,
    cache_input_tensors: bool = False,
    do_not_specialize: Sequence[str] | str | None = None,
    early_stop: bool = False,
    early_stop_factor: float = 2.0,
    timer: Timer | None = None,
    budget: float | None = None,
    search: str = "exhaustive",
    tune: str = "first_call",
    buckets: Buckets = POWERS_OF_TWO,
    backend: str = "event",
    devices: str | Sequence[Any] | None = None,
) -> Any:  # noqa: ANN401
    """Let the first call choose tunable parameters; stands above ``@tileops.jit``.

    ``configs``: dicts of compile-time parameters (and ``pass_configs``), a function of the call's
    arguments, ``tileops.space(...)``, or ``auto``: choices around the defaults of what the tiles,
    stages and threads depend on. The default is always among them. ``warmup`` and ``rep`` count
    runs, ``timeout`` is seconds for each config; see ``ProfileArgs`` for inputs and checks.
    ``do_not_specialize``: arguments and sizes that tell no two tunings apart. ``early_stop``: a
    config ``early_stop_factor`` times slower than the best is not timed further.
    ``timer(config, kernel, inputs)`` gives milliseconds, in this process, in place of the tuner's
    measurement. ``search``: ``exhaustive``, ``random`` or ``halving``, within ``budget`` seconds.
    ``tune='never'``: what is not tuned runs with its default. ``buckets``: upper bounds of run-time
    sizes that share a config (a list, or lists by name), a function of name and size, or None.
    ``devices='all'`` measures on every GPU of the model. TileopsError where no config is right;
    CompileMissError where a call would measure in strict mode or under graph capture.
    """
    del cache_input_tensors
    names = do_not_specialize or ()
    options = TuningOptions(
        warmup=warmup, rep=rep, timeout=timeout, backend=backend, supply_type=supply_type,
        ref_prog=ref_prog, supply_prog=supply_prog, rtol=rtol, atol=atol,
        max_mismatched_ratio=max_mismatched_ratio, skip_check=skip_check,
        manual_check_prog=manual_check_prog, timer=timer, search=search, budget=budget, tune=tune,
        devices=devices, buckets=buckets,
        early_stop_factor=early_stop_factor if early_stop else None,
        do_not_specialize=(names,) if isinstance(names, str) else tuple(names),
    )  # fmt: skip

    def decorate(program: object) -> TunedProgram:
        return _tuned(program, configs, options)

    return decorate if func is None else decorate(func)


def _tuned(program: object, configs: Configs, options: TuningOptions) -> TunedProgram:
    if isinstance(program, TunedProgram) or not isinstance(program, JITImpl):
        raise ArgumentTypeError(
            "autotune stands directly above @tileops.jit; it got "
            f"{'a tuned program' if isinstance(program, TunedProgram) else type(program).__name__}"
        )
    definition = program.definition
    tuner = Tuner(definition, configs, options)
    fallbacks = tuner.fallbacks()
    if any(definition.defaults.get(name) is None for name in fallbacks[0]):
        program = with_fallback(definition, fallbacks)
    return TunedProgram(program, tuner)


class AutoTuner:
    """Tunes one kernel: ``AutoTuner.from_kernel(fn, configs).set_profile_args(...).run()``."""

    def __init__(self, program: JITImpl, configs: Configs) -> None:
        self._program = program
        self._configs = configs
        self._compile = CompileArgs()
        self._profile = ProfileArgs()

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Configs) -> AutoTuner:
        """A tuner of a jit function, or of a function of the config that returns a T.prim_func."""
        if isinstance(kernel, FunctionType):
            kernel = jit(kernel)
        if not isinstance(kernel, JITImpl):
            raise ArgumentTypeError(
                f"from_kernel takes a jit function or a plain one, got {type(kernel).__name__}"
            )
        return cls(kernel, configs)

    def set_compile_args(self, *values: Any, **named: Any) -> AutoTuner:  # noqa: ANN401
        """Set fields of ``CompileArgs``, in their order or by name."""
        self._compile = _replaced(self._compile, named, values)
        return self

    def set_profile_args(self, **named: Any) -> AutoTuner:  # noqa: ANN401
        """Set fields of ``ProfileArgs`` by name."""
        self._profile = _replaced(self._profile, named)
        return self

    def run(
        self,
        warmup: int | None = None,
        rep: int | None = None,
        timeout: float | None = None,
        use_pipeline: bool = False,
        enable_grouped_compile: bool = False,
        group_compile_size: int = 2,
        benchmark_devices: Sequence[Any] | None = None,
        benchmark_multi_gpu: bool = False,
        early_stop: bool = False,
        early_stop_factor: float = 2.0,
        *,
        timer: Timer | None = None,
        search: str = "exhaustive",
        budget: float | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> AutotuneResult:
        """Tune, or recall what was found before.

        ``warmup``, ``rep`` and ``timeout`` replace those of the profile arguments. ``args`` and
        ``kwargs`` are the function's other arguments. ``benchmark_multi_gpu`` measures on all GPUs
        of the model, ``benchmark_devices`` on these. Compiling runs beside measuring always;
        ``use_pipeline``, ``enable_grouped_compile`` and ``group_compile_size`` are accepted.
        """
        del use_pipeline, enable_grouped_compile, group_compile_size
        given = {"warmup": warmup, "rep": rep, "timeout": timeout}
        profile = {**vars(self._profile), **{k: v for k, v in given.items() if v is not None}}
        options = TuningOptions(
            **profile, timer=timer, search=search, budget=budget,
            early_stop_factor=early_stop_factor if early_stop else None,
            devices="all" if benchmark_multi_gpu else benchmark_devices,
        )  # fmt: skip
        program = JITImpl(self._definition(), is_derived=True)
        tuned = _tuned(program, self._configs, options)
        kernel = tuned.compile(*args, **(kwargs or {}))
        return AutotuneResult(
            kernel.latency,
            kernel.config,
            state_of(kernel.name).ref_latency,
            kernel.get_kernel_source(),
            kernel.prim_func,
            kernel,
        )

    def _definition(self) -> Definition:
        own, asked = self._program.definition.options, vars(self._compile)
        # The others leave it to the program.
        changed = {n: v for n, v in asked.items() if v not in (None, "auto") and v is not False}
        if "pass_configs" in changed:
            changed["pass_configs"] = {**(own.pass_configs or {}), **changed["pass_configs"]}
        return replace(self._program.definition, options=replace(own, **changed))


def _replaced(value: Any, named: Mapping[str, Any], values: Sequence[Any] = ()) -> Any:  # noqa: ANN401
    known = [f.name for f in fields(value)]
    if len(values) > len(known):
        raise ArgumentError(f"{type(value).__name__} has {len(known)} fields, got {len(values)}")
    changed = dict(zip(known, values, strict=False))
    for name in named:
        if name in changed:
            raise ArgumentError(f"{type(value).__name__}: field '{name}' is given twice")
        if name not in known:
            raise ArgumentError(
                f"{type(value).__name__} has no field '{name}' ({', '.join(known)})"
            )
    return replace(value, **changed, **named)
