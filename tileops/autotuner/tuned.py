"""Tuned programs: jit programs whose tunable parameters a tuner chooses, eager and lazy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from tileops.autotuner.request import Tuner, TuningRequest
from tileops.autotuner.spaces import PASS_CONFIGS, Config
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError
from tileops.jit.definition import Definition, with_options
from tileops.jit.eager import Choice
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.lazy import LazyKernels
from tileops.jit.provider import Build, reaches_index64, state_of
from tileops.jit.specialising import Specialised, specialise
from tileops.jit.targets import default_target, device_for
from tileops.pass_configs import options_of

if TYPE_CHECKING:
    from tileops.autotuner.session import TuningResult
    from tileops.ir.program import Program
    from tileops.op.registration import Buckets
    from tileops.op.variant import Variant

_calls = threading.local()


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
        self._tuning = self._eager.tuning = _EagerTuning(self, tuner)
        if self._eager.op is not None:
            self._eager.op.bucketing = self._tuning.buckets
            self._eager.op.keep_given()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run an eager program, or give the tuned kernel of a lazy one."""
        if torch.compiler.is_compiling():
            return super().__call__(*args, **kwargs)
        if self._awaits_configs:
            self._take_configs(args, kwargs)
        # If this call tunes, it is on these arguments.
        before = getattr(_calls, "current", None)
        _calls.current = (self._eager, args, kwargs)
        try:
            return super().__call__(*args, **kwargs)
        finally:
            _calls.current = before

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
        if self.tuner.is_explicit(values):
            return super().compile(*args, **kwargs)
        made = self.specialised(args, kwargs)
        target = self._build.target or default_target()
        given = frozenset(n for n in values if n not in definition.inputs)
        facts = Specialization(fast=True, index64=reaches_index64(made.program))
        choice = Choice(
            definition.name, self._eager.script or "", made.static, given, made.consts, made.sizes,
            target, facts, device_for(target),
        )  # fmt: skip
        tensors = {n: v for n, v in values.items() if n in definition.inputs}
        has_all = len(tensors) == len(self._inputs)
        request = self._tuning.request(choice, tensors if has_all else None)
        if request is None:
            return super().compile(*args, **kwargs)
        result = self.tuner.decide(request)
        kernel = make_kernel(self._title, request.trace(result.config), self._build)
        return _marked(kernel, result)


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


class _EagerTuning:
    """Chooses configs for the op of an eager program (see ``jit.eager.Tuning``)."""

    def __init__(self, program: TunedProgram, tuner: Tuner) -> None:
        self._program = program
        self._tuner = tuner

    def buckets(self, variant: Variant) -> Buckets:
        """The run-time sizes of tensors, each with its bounds."""
        bounds = {
            number: self._tuner.bounds(size.name)
            for number, size in enumerate(variant.sizes)
            if size.kind == "dynamic"
        }
        return tuple((number, found) for number, found in bounds.items() if found is not None)

    def choose(self, choice: Choice) -> Mapping[str, Any]:
        """The best config for what a call asks, the default where none can be found."""
        if not self.is_needed(choice.given):
            return {}
        request = self.request(choice, self._arguments())
        return {} if request is None else self._tuner.decide(request).config

    def is_needed(self, given: frozenset[str]) -> bool:
        """Whether a call that gives these values leaves the config to choose."""
        return not self._tuner.is_explicit(given)

    def sample(
        self,
        values: Mapping[str, object],
        given: Container[str],
        trace: Callable[[Mapping[str, object]], Program],
    ) -> Program:
        """See ``Tuner.sample``."""
        return self._tuner.sample(values, given, trace)

    def _arguments(self) -> dict[str, Any] | None:
        """The arguments of the call in progress by name; None for one that came by torch alone."""
        program, call = self._program, getattr(_calls, "current", None)
        if call is None or call[0] is not program._eager:
            return None
        try:
            inputs, _, _ = program._split(call[1], call[2])
        except TypeError:
            return None
        return dict(zip(program._inputs, inputs, strict=True))

    def request(self, choice: Choice, arguments: Mapping[str, Any] | None) -> TuningRequest | None:
        """What is asked of the tuner; None where there is no device to measure on."""
        if choice.device is None:
            return None
        definition = self._program.definition

        def trace(config: Config) -> Program:
            values = {**choice.values, **config}
            options = options_of(values.pop(PASS_CONFIGS, None), None)
            return with_options(definition.trace(values, choice.consts), options)

        return TuningRequest(
            op=definition.name,
            script=choice.script,
            static={n: v for n, v in choice.values.items() if n not in self._tuner.names},
            consts=choice.consts,
            dynamic={n: v for n, v in choice.sizes.items() if n not in choice.consts},
            facts={"fast": choice.facts.fast, "index64": choice.facts.index64},
            target=choice.target,
            device=_device(choice.device),
            build=self._program._build,
            trace=trace,
            arguments=arguments,
            defaults=choice.values,
            scalars=choice.scalars,
        )


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
        if self._tuner.is_explicit((*definition.parameters[: len(args)], *kwargs)):
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

        def trace(config: Config) -> Program:
            values = {**filled, **config}
            options = options_of(values.pop(PASS_CONFIGS, None), None)
            return with_options(self.program(args, values), options)

        values = self._arguments(args, filled)
        request = TuningRequest(
            op=definition.name,
            script=None,
            static={n: v for n, v in values.items() if n not in self._tuner.names},
            target=target,
            device=_device(device),
            build=self.build,
            trace=trace,
            defaults=values,
        )
        result = self._tuner.decide(request)
        kernel = make_kernel(definition.name, trace(result.config), self.build)
        return self._tuned.setdefault(key, _marked(kernel, result))


def _device(device: tuple[str, int]) -> torch.device:
    return torch.device("cpu") if device[0] == "cpu" else torch.device(*device)


def _marked(kernel: JITKernel, result: TuningResult) -> JITKernel:
    state = state_of(kernel.name)
    state.config, state.latency = dict(result.config), result.latency
    state.ref_latency = result.ref_latency
    return kernel
