"""What users call: ``autotune`` and the programs it makes, and ``AutoTuner`` for one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from tileops.autotuner.inputs import of_thread
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
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.jit.definition import Definition, split_config, with_options
from tileops.jit.eager import Choice
from tileops.jit.entry_points import jit
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.lazy import LazyKernels
from tileops.jit.provider import Build, reaches_index64, state_of
from tileops.jit.specialising import Specialised, specialise
from tileops.jit.targets import default_target, device_for
from tileops.profiler import TensorSupplyType

if TYPE_CHECKING:
    from tileops.ir.program import Program


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


# -- tuned programs --------------------------------------------------------------------------------
class TunedProgram(JITImpl):
    """A jit program under ``autotune``.

    A call with the tunable parameters left out takes the best config for its arguments, tuning at
    the first one. A call that gives a tunable parameter is not tuned: the others have their
    defaults.
    """

    def __init__(self, program: JITImpl, tuner: Tuner) -> None:
        # The op is registered once, whichever object is called.
        super().__init__(program.definition, is_derived=program._is_derived, eager=program._eager)
        self.tuner = tuner
        self._awaits_configs = not self._is_lazy and tuner.awaits_configs(self.definition)
        if self._is_lazy:
            self._lazy = _TunedKernels(self.definition, self._build, tuner)
            return
        self._eager.tuning = tuner
        if self._eager.op is not None:
            self._eager.op.bucketing = tuner.buckets
            self._eager.op.keep_given()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run an eager program, or give the tuned kernel of a lazy one."""
        if torch.compiler.is_compiling():
            return super().__call__(*args, **kwargs)
        if self._awaits_configs:
            self._take_configs(args, kwargs)
        # If this call tunes, it is on these arguments.
        before, of_thread.call = of_thread.call, (self, args, kwargs)
        try:
            return super().__call__(*args, **kwargs)
        finally:
            of_thread.call = before

    def _take_configs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Let a function of the call give parameters without a default the values of a config."""
        with self._eager.lock:
            if not self._awaits_configs:
                return
            values, _ = self.definition.bind_arguments(args, kwargs)
            inputs = {n: values[n] for n in self._inputs if n in values}
            if self.tuner.offers(inputs, values):
                rules, bindings = self._eager.transforms, self._bindings
                program = with_fallback(self.definition, self.tuner.fallbacks())
                TunedProgram.__init__(self, program, self.tuner)
                self._eager.take_transforms(rules)
                self._bindings = bindings

    @property
    def is_tuned(self) -> bool:
        """True: what a call leaves out, a tuner chooses."""
        return True

    def _derived(self, definition: Definition) -> JITImpl:
        return TunedProgram(super()._derived(definition), self.tuner)

    def specialised(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Specialised:
        """The program that a call would run, under a config that its own code takes."""
        if self._awaits_configs:
            self._take_configs(args, kwargs)
        definition = self.definition
        values, _ = definition.bind_arguments(args, kwargs)

        def trace(tried: Mapping[str, object], consts: Mapping[str, int] | None) -> Program:
            return self.tuner.sample(tried, values, lambda found: definition.trace(found, consts))

        return specialise(definition, args, kwargs, trace)

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:  # noqa: ANN401
        """The kernel of the best config for these arguments (see ``JITImpl.compile``)."""
        if self._is_lazy:
            return self._lazy.kernel(args, kwargs)
        if self._awaits_configs:
            self._take_configs(args, kwargs)
        definition = self.definition
        values, _ = definition.bind_arguments(args, kwargs)
        target = self._build.target or default_target()
        device = device_for(target)
        if device is None or not self.tuner.is_needed(values):
            return super().compile(*args, **kwargs)
        made = self.specialised(args, kwargs)
        given = frozenset(n for n in values if n not in definition.inputs)
        facts = Specialization(fast=True, index64=reaches_index64(made.program))
        inputs = {n: v for n, v in values.items() if n in definition.inputs}
        choice = Choice(
            definition, self._build, self._eager.script or "", made.static, given, made.consts,
            made.sizes, target, facts, device, definition.under_configs(made.static, made.consts),
            arguments=inputs if len(inputs) == len(self._inputs) else None,
        )  # fmt: skip
        return _kernel(self._title, choice, self.tuner)


def with_fallback(definition: Definition, fallbacks: Sequence[Mapping[str, object]]) -> JITImpl:
    """The program with the first of the fallbacks that its own code takes."""
    refused: Exception | None = None
    for values in fallbacks:
        try:
            return JITImpl(replace(definition, fallback=values))
        except Exception as error:
            refused = refused or error
    assert refused is not None
    raise refused


class _TunedKernels(LazyKernels):
    """The kernels of a lazy function under ``autotune``, the best one for each set of arguments."""

    def __init__(self, definition: Definition, build: Build, tuner: Tuner) -> None:
        super().__init__(definition, build)
        self._tuner = tuner
        self._tuned: dict[object, JITKernel] = {}

    def unload(self) -> None:
        """As for other lazy functions, with the tuned kernels."""
        super().unload()
        for kernel in tuple(self._tuned.values()):
            kernel.unload()

    def key(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:  # noqa: ANN401
        """As for other lazy functions; the tunable parameters may be left out."""
        return super().key(args, self._filled(args, kwargs))

    def _filled(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        positional = self.definition.parameters[: len(args)]
        fallback = self.definition.fallback
        return {**{n: v for n, v in fallback.items() if n not in positional}, **kwargs}

    def kernel(self, args: Sequence[object], kwargs: Mapping[str, object]) -> JITKernel:
        """The tuned kernel, or the one that given tunable parameters describe."""
        definition, filled = self.definition, self._filled(args, kwargs)
        if not self._tuner.is_needed((*definition.parameters[: len(args)], *kwargs)):
            return super().kernel(args, filled)
        key = super().key(args, filled)
        found = self._tuned.get(key)
        if found is not None:
            return found
        target = self.build.target or default_target()
        device = device_for(target)
        if device is None:
            raise ArgumentError(
                f"{definition.name}: tuning for {target} needs a device that runs it; give "
                "the configuration instead"
            )

        def trace(config: Mapping[str, Any]) -> Program:
            values, options = split_config(filled, config)
            return with_options(self.program(args, values), options)

        choice = Choice(
            definition, self.build, "", self._arguments(args, filled), frozenset(), {}, {}, target,
            None, device, trace,
        )  # fmt: skip
        return self._tuned.setdefault(key, _kernel(definition.name, choice, self._tuner))


def _kernel(name: str, choice: Choice, tuner: Tuner) -> JITKernel:
    """The kernel of the best config; it knows what the tuning found."""
    result = tuner.decide(choice)
    kernel = make_kernel(name, choice.trace(result.config), choice.build)
    state = state_of(kernel.name)
    state.config, state.latency = dict(result.config), result.latency
    state.ref_latency = result.ref_latency
    return kernel


# -- one kernel ------------------------------------------------------------------------------------
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
