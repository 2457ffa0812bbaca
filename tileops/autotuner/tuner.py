"""The tuner of one program: from what a call asks for to the configs and the key of a tuning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch

from tileops.autotuner import spaces
from tileops.autotuner.database import TuningKey, TuningResult
from tileops.autotuner.param import POWERS_OF_TWO, TuningOptions, errors_of
from tileops.autotuner.session import TuningSession
from tileops.autotuner.spaces import Config, Configs, canonical
from tileops.cache import sources
from tileops.devices import device_model
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.jit import tool_versions
from tileops.jit.captured import identity
from tileops.jit.tuned import arguments_of_call

if TYPE_CHECKING:
    from tileops.ir.program import Program
    from tileops.jit.definition import Definition
    from tileops.jit.eager import Choice
    from tileops.op.registration import Buckets
    from tileops.op.variant import Variant


class Tuner:
    """Chooses for one program (see ``jit.eager.Tuning``); ``configs`` and ``options`` as given."""

    def __init__(self, definition: Definition, configs: Configs, options: TuningOptions) -> None:
        self.options = options
        self._definition = definition
        self._statics = tuple(p.name for p in definition.signature.params if p.kind == "static")
        if isinstance(configs, str) and configs != "auto":
            raise ArgumentError(f"configs: expected a list, a space or 'auto', got {configs!r}")
        self._configs = configs
        self._is_auto, self._is_function = isinstance(configs, str), callable(configs)
        # Those of a function are known once it was asked about a call: the last one counts.
        self._known = [] if self._is_auto or self._is_function else self._resolved(())
        self.names = _named(self._known) if self._known else self._tunable()
        self._ignored = frozenset(options.do_not_specialize)
        # For lazy programs, whose text is not known without their arguments: in this process only.
        self._decided: dict[str, TuningResult] = {}

    def _resolved(self, arguments: Iterable[object]) -> list[Config]:
        """The given configs; a function of them gets the arguments of a call."""
        with errors_of(self._definition.name, "configs"):
            return spaces.listed(self._configs, self._statics, [*map(_described, arguments)])

    def _tunable(self) -> tuple[str, ...]:
        # What a function of configs gives is only known after a call. It gives the parameters whose
        # default is None; where there are none, integers with a default; where there are none of
        # those either, what has no default.
        defaults = self._definition.defaults
        open_ones = tuple(n for n in self._statics if defaults.get(n, 0) is None)
        if open_ones and not self._is_auto:
            return open_ones
        integers = tuple(n for n in self._statics if type(defaults.get(n)) is int)
        if integers or self._is_auto:
            return integers
        return tuple(n for n in self._statics if n not in defaults)

    def fallbacks(self) -> list[dict[str, object]]:
        """Values for tunable parameters without a default: those of each config, in order."""
        configs: list[Config] = self._known or [{}]
        return [{n: v for n, v in c.items() if n != spaces.PASS_CONFIGS} for c in configs]

    def awaits_configs(self, definition: Definition) -> bool:
        """Whether parameters have no value until a function has given configs for a call."""
        is_open = any(definition.defaults.get(name) is None for name in self.names)
        return is_open and self._is_function

    def offers(self, inputs: Mapping[str, object], given: Container[str]) -> bool:
        """Ask the function of configs about a call: what it names is what is tuned from now on.

        False where the call gives one of those itself.
        """
        self._known = self._resolved(inputs.values())
        self.names = _named(self._known)
        return not any(name in given for name in self.names)

    # -- jit.eager.Tuning --------------------------------------------------------------------------
    def choose(self, choice: Choice) -> Mapping[str, Any]:
        """The best config for what a call asks, the default where none can be found."""
        if choice.device is None or not self.is_needed(choice.given):
            return {}
        return self.decide(replace(choice, arguments=arguments_of_call(choice.definition))).config

    def is_needed(self, given: Iterable[str]) -> bool:
        """Whether a call that gives these values leaves the config to choose."""
        return not any(name in self.names for name in given)

    def buckets(self, variant: Variant) -> Buckets:
        """The run-time sizes of tensors, each with its bounds."""
        bounds = {
            number: self._bounds(size.name)
            for number, size in enumerate(variant.sizes)
            if size.kind == "dynamic"
        }
        return tuple((number, found) for number, found in bounds.items() if found is not None)

    def sample(
        self,
        values: Mapping[str, object],
        given: Container[str],
        trace: Callable[[Mapping[str, object]], Program],
    ) -> Program:
        """The program under ``values``, or under the first config where its code refuses those.

        Raises the error of ``values`` where no config of a fixed space helps, or one is ``given``.
        """
        try:
            return trace(values)
        except Exception:
            if any(name in given for name in self.names):
                raise
            for tunable in self.fallbacks():
                with suppress(Exception):
                    return trace({**values, **tunable})
            raise

    def decide(self, choice: Choice) -> TuningResult:
        """The best config; measures where nothing is recorded (see ``TuningSession.run``).

        ArgumentError where names in the options are unknown.
        """
        space, key = self._space(choice), self._key(choice)
        default = self._default(choice, space)
        configs = spaces.by_name(space, default)
        name = None if default is None else canonical(default)
        is_general = not self._ignored.isdisjoint((*self._static(choice), *choice.all_sizes))
        known = self._decided if is_general and not choice.script else {}
        if key.hash not in known:
            session = TuningSession(choice, self.options, configs, name, key, is_general=is_general)
            known[key.hash] = session.run()
        return known[key.hash]

    # -- from a choice to its configs and its key --------------------------------------------------
    def _static(self, choice: Choice) -> dict[str, object]:
        """The compile-time values that are not tunable."""
        return {n: v for n, v in choice.values.items() if n not in self.names}

    def _space(self, choice: Choice) -> list[Config]:
        op, static, sizes = choice.op, self._static(choice), tuple(choice.all_sizes)
        known = tuple(dict.fromkeys((*self._definition.parameters, *static, *sizes)))
        _check_names(op, "do_not_specialize", sorted(self._ignored), known)
        if isinstance(self.options.buckets, Mapping):
            _check_names(op, "buckets", self.options.buckets, sizes)
        if self._is_auto:
            values = {n: v for n, v in choice.values.items() if n in self.names}
            return spaces.automatic(choice.trace, values, choice.target)
        if self._is_function:
            arguments = static if choice.arguments is None else choice.arguments
            return self._resolved(arguments.values())
        return self._known

    def _default(self, choice: Choice, configs: Sequence[Config]) -> Config | None:
        """The config that runs without tuning, None where a parameter has no value."""
        # Before a function has given its configs, any parameter may be one of theirs.
        named = {name for config in configs for name in config}
        found = {n: choice.values.get(n) for n in self.names if n in named}
        return None if any(v is None for v in found.values()) else found

    def _key(self, choice: Choice) -> TuningKey:
        options, target = self.options, choice.target

        def known(values: Mapping[str, Any]) -> dict[str, Any]:
            return {n: v for n, v in values.items() if n not in self._ignored}

        static = {n: _text(v) for n, v in known(self._static(choice)).items()}
        dynamic = {n: v for n, v in known(choice.sizes).items() if n not in choice.consts}
        # Code for the CPU does not depend on them.
        has_facts = choice.facts is not None and target.kind != "cpu"
        facts: dict[str, Any] = {
            "static": static,
            "sizes": known(choice.consts),
            "bucket": {n: self._bucket(n, v) for n, v in dynamic.items()},
            "facts": asdict(choice.facts) if choice.facts is not None and has_facts else {},
            "target": str(target),
            "device": device_model(choice.torch_device),
            "versions": {"codegen": sources.digest(), **tool_versions.of(target)},
            "timer": None if options.timer is None else identity(options.timer),
            "checked": options.checks,
            "backend": options.backend,
        }
        script = choice.script
        if not script:
            script = hashlib.sha256(canonical({"op": choice.op, **static}).encode()).hexdigest()
        return TuningKey(choice.op, script, facts)

    def _bounds(self, size: str) -> tuple[int, ...] | None:
        """Upper bounds of a run-time size's buckets: () for exact values, None for one bucket."""
        buckets = self.options.buckets
        if buckets is None or size in self._ignored:
            return None
        if callable(buckets):
            return ()
        bounds = buckets.get(size, POWERS_OF_TWO) if isinstance(buckets, Mapping) else buckets
        return tuple(sorted(bounds))

    def _bucket(self, size: str, value: int) -> object:
        """The bucket of a run-time size, as it stands in a key."""
        bounds, buckets = self._bounds(size), self.options.buckets
        if bounds is None:
            return "any"
        if not callable(buckets):
            return next((bound for bound in bounds if value <= bound), "more")
        place = f"buckets('{size}', {value})"
        with errors_of(self._definition.name, place):
            found = buckets(size, value)
            try:
                return spaces.plain(found)
            except TypeError as error:
                raise ArgumentTypeError(f"{place}: {error}") from None


def _named(configs: Iterable[Config]) -> tuple[str, ...]:
    """The tunable parameters of some configs."""
    found = dict.fromkeys(n for config in configs for n in config)
    return tuple(n for n in found if n != spaces.PASS_CONFIGS)


def _check_names(op: str, argument: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"op {op}: {argument} names '{name}', which is not an argument or size of the "
                f"program ({', '.join(known) or 'it has none'})"
            )


def _described(value: object) -> object:
    """A call's argument as a function of configs gets it."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return ("tensor", dtype, tuple(value.shape), tuple(value.stride()))
    return value


def _text(value: object) -> object:
    """A compile-time value in a key: itself, or for what JSON lacks the name of it."""
    try:
        return spaces.plain(value)
    except TypeError:
        return identity(value)
