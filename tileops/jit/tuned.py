"""Tuned programs: programs whose tunable parameters a tuner chooses, eager and lazy."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError
from tileops.jit.definition import Definition, split_config, with_options
from tileops.jit.eager import Choice, Tuning
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.lazy import LazyKernels
from tileops.jit.provider import Build, reaches_index64, state_of
from tileops.jit.specialising import Specialised, specialise
from tileops.jit.targets import default_target, device_for
from tileops.optional_torch import torch

if TYPE_CHECKING:
    from tileops.ir.program import Program


class _InProgress(threading.local):
    """The call of a tuned program in progress, with its arguments."""

    call: tuple[TunedProgram, tuple[Any, ...], dict[str, Any]] | None = None


_in_progress = _InProgress()


def arguments_of_call(definition: Definition) -> dict[str, Any] | None:
    """The arguments of the call in progress by name; None for one that came by torch alone."""
    if _in_progress.call is None or _in_progress.call[0].definition is not definition:
        return None
    program, args, kwargs = _in_progress.call
    try:
        inputs, _, _ = program._split(args, kwargs)
    except TypeError:
        return None
    return dict(zip(definition.inputs, inputs, strict=True))


class TunedProgram(JITImpl):
    """A jit program under ``autotune``.

    A call with the tunable parameters left out takes the best config for its arguments, tuning at
    the first one. A call that gives a tunable parameter is not tuned: the others have their
    defaults.
    """

    def __init__(self, program: JITImpl, tuner: Tuning) -> None:
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
        before, _in_progress.call = _in_progress.call, (self, args, kwargs)
        try:
            return super().__call__(*args, **kwargs)
        finally:
            _in_progress.call = before

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
        return _tuned_kernel(self._title, choice, self.tuner)


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

    def __init__(self, definition: Definition, build: Build, tuner: Tuning) -> None:
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
        return self._tuned.setdefault(key, _tuned_kernel(definition.name, choice, self._tuner))


def _tuned_kernel(name: str, choice: Choice, tuner: Tuning) -> JITKernel:
    """The kernel of the best config; it knows what the tuning found."""
    result = tuner.decide(choice)
    kernel = make_kernel(name, choice.trace(result.config), choice.build)
    state = state_of(kernel.name)
    state.config, state.latency = dict(result.config), result.latency
    state.ref_latency = result.ref_latency
    return kernel
