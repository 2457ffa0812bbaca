"""Owns tuned programs: jit programs whose tunable parameters a tuner chooses, eager and lazy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tileops.autotuner.spaces import PASS_CONFIGS, Config
from tileops.autotuner.tuner import Asked, Tuner
from tileops.errors import ArgumentError
from tileops.ir.program import Program
from tileops.jit.definition import Definition, with_options
from tileops.jit.eager import Choice
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.lazy import LazyKernels
from tileops.jit.provider import reaches_index64, state_of
from tileops.jit.specialising import specialise
from tileops.jit.targets import default_target, device_for
from tileops.op.registration import Buckets
from tileops.op.variant import Variant
from tileops.pass_configs import options_of

_calls = threading.local()

# Upper bounds of the default buckets: powers of two.
POWERS_OF_TWO = tuple(1 << n for n in range(41))


class TunedProgram(JITImpl):
    """A jit program under ``autotune``.

    A call with the tunable parameters left out takes the best config for its arguments, tuning at
    the first one. A call that gives a tunable parameter is not tuned: the others have their
    defaults.
    """

    def __init__(self, program: JITImpl, tuner: Tuner) -> None:
        # The program's own state: the op is registered once, whichever object is called.
        self.__dict__.update(program.__dict__)
        self.tuner = tuner
        self._tuned_bindings: dict[int, TunedProgram] = {}
        self._awaits_configs = not self._is_lazy and tuner.awaits_configs(self.definition)
        if self._is_lazy:
            self._lazy = TunedKernels(self.definition, self._build, tuner)
            return
        self._eager.on_retired = self._forget_op
        self._eager.is_tuned = True
        self._eager.tuning = EagerTuning(self, tuner)
        if self._eager.op is not None:
            self._eager.op.bucketing = self._eager.tuning.buckets
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
            if self.tuner.offers(self.definition.name, inputs, values):
                program = with_fallback(self.definition, self.tuner.fallbacks())
                TunedProgram.__init__(self, program, self.tuner)

    @property
    def is_tuned(self) -> bool:
        """True: what a call leaves out, a tuner chooses."""
        return True

    def bind(self, **values: object) -> JITImpl:
        """As ``JITImpl.bind``; the result is tuned too."""
        bound = super().bind(**values)
        found = self._tuned_bindings.get(id(bound))
        if found is None:
            found = self._tuned_bindings[id(bound)] = TunedProgram(bound, self.tuner)
        return found

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:  # noqa: ANN401
        """The kernel of the best config for these arguments (see ``JITImpl.compile``)."""
        if self._is_lazy:
            return self._lazy.kernel(args, kwargs)
        if self._awaits_configs:
            self._take_configs(args, kwargs)
        values, _ = self.definition.bind_arguments(args, kwargs)
        if self.tuner.is_explicit(values):
            return super().compile(*args, **kwargs)
        definition = self.definition

        def trace(tried: Mapping[str, object], consts: Mapping[str, int] | None) -> Program:
            return self.tuner.sample(tried, values, lambda found: definition.trace(found, consts))

        made = specialise(definition, args, kwargs, trace)
        target = self._build.target or default_target()
        given = frozenset(n for n in values if n not in self.definition.inputs)
        choice = Choice(
            self.definition.name, self._eager.script or "", made.static, given, made.consts,
            made.sizes, target,
            replace(self.tuner.facts, index64=reaches_index64(made.program)), device_for(target),
        )  # fmt: skip
        tuning = self._eager.tuning
        assert isinstance(tuning, EagerTuning)
        tensors = {n: v for n, v in values.items() if n in self.definition.inputs}
        asked = tuning.asked(choice, tensors if len(tensors) == len(self._inputs) else None)
        if asked is None:
            return super().compile(*args, **kwargs)
        decision = self.tuner.decide(asked)
        kernel = make_kernel(self._title, asked.trace(decision.config), self._build)
        return _marked(kernel, decision)


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


class EagerTuning:
    """Chooses configs for the op of an eager program (see ``jit.eager.Tuning``)."""

    def __init__(self, program: TunedProgram, tuner: Tuner) -> None:
        self._program = program
        self._tuner = tuner

    def buckets(self, variant: Variant) -> Buckets:
        """The run-time sizes of tensors, each with its bounds."""
        found = []
        for number, size in enumerate(variant.sizes):
            if size.kind == "dynamic":
                bounds = self._tuner.bounds(size.name)
                if bounds is not None:
                    found.append((number, bounds))
        return tuple(found)

    def choose(self, choice: Choice) -> Mapping[str, Any]:
        """The best config for what a call asks, the default where none can be found."""
        if not self.is_needed(choice.given):
            return {}
        asked = self.asked(choice, self._arguments())
        return {} if asked is None else self._tuner.decide(asked).config

    def is_needed(self, given: frozenset[str]) -> bool:
        """Whether a call that gives these values leaves the config to choose."""
        return not self._tuner.is_explicit(sorted(given))

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

    def asked(self, choice: Choice, arguments: Mapping[str, Any] | None) -> Asked | None:
        """What is asked of the tuner; None where there is no device to measure on."""
        if choice.device is None:
            return None
        definition = self._program.definition
        static = {n: v for n, v in choice.values.items() if n not in self._tuner.names}
        dynamic = {n: v for n, v in choice.sizes.items() if n not in choice.consts}

        def trace(config: Config) -> Program:
            values = {**choice.values, **config}
            options = options_of(values.pop(PASS_CONFIGS, None), None)
            return with_options(definition.trace(values, choice.consts), options)

        return Asked(
            op=definition.name,
            script=choice.script,
            static=static,
            consts=choice.consts,
            dynamic=dynamic,
            facts={"fast": choice.facts.fast, "index64": choice.facts.index64},
            target=choice.target,
            device=torch.device(*choice.device) if choice.device[0] != "cpu" else _CPU,
            build=self._program._build,
            trace=trace,
            arguments=arguments,
            defaults=choice.values,
            scalars=choice.scalars,
        )


_CPU = torch.device("cpu")


class TunedKernels(LazyKernels):
    """The kernels of a lazy function under ``autotune``, the best one for each set of arguments."""

    def __init__(self, definition: Definition, build: Any, tuner: Tuner) -> None:  # noqa: ANN401
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
        missing = {
            n: v
            for n, v in self.definition.fallback.items()
            if n not in positional and n not in kwargs
        }
        return {**missing, **kwargs}

    def kernel(self, args: Sequence[object], kwargs: Mapping[str, object]) -> JITKernel:
        """The tuned kernel, or the one that given tunable parameters describe."""
        names = dict.fromkeys((*self.definition.parameters[: len(args)], *kwargs))
        if self._tuner.is_explicit(names):
            return super().kernel(args, self._filled(args, kwargs))
        filled = self._filled(args, kwargs)
        arguments = {
            n: v for n, v in self._arguments(args, filled).items() if n not in self._tuner.names
        }
        key = super().key(args, filled)
        found = self._tuned.get(key)
        if found is not None:
            return found
        target = self.build.target or default_target()
        device = device_for(target)
        if device is None:
            raise ArgumentError(
                f"{self.definition.name}: tuning for {target} needs a device that runs it; give "
                "the configuration instead"
            )

        def trace(config: Config) -> Program:
            values = {**filled, **config}
            options = options_of(values.pop(PASS_CONFIGS, None), None)
            return with_options(self.program(args, values), options)

        asked = Asked(
            op=self.definition.name,
            script=None,
            static=arguments,
            consts={},
            dynamic={},
            facts={},
            target=target,
            device=torch.device(*device) if device[0] != "cpu" else _CPU,
            build=self.build,
            trace=trace,
            arguments=None,
            defaults={**self._arguments(args, filled)},
        )
        decision = self._tuner.decide(asked)
        kernel = make_kernel(self.definition.name, trace(decision.config), self.build)
        return self._tuned.setdefault(key, _marked(kernel, decision))


def _marked(kernel: JITKernel, decision: Any) -> JITKernel:  # noqa: ANN401
    state = state_of(kernel.name)
    state.config, state.latency = dict(decision.config), decision.latency
    state.ref_latency = decision.ref_latency
    return kernel
