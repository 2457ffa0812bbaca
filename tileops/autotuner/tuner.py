"""Owns the tuner of one program: from what a call asks for to the question that is decided."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tileops.autotuner import arguments, automatic, spaces
from tileops.autotuner.database import TuningKey
from tileops.autotuner.deciding import Decision, Manner, Question, decide
from tileops.autotuner.identity import identity
from tileops.autotuner.making import Known, make
from tileops.autotuner.spaces import Config, Configs, canonical
from tileops.cache import sources
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.program import Program
from tileops.jit import tool_versions
from tileops.jit.definition import Definition
from tileops.jit.kernel import describe_param
from tileops.jit.provider import Build
from tileops.target import Target

# How sizes that are known at each call only are put together; None: not at all.
Buckets = Callable[[str, int], object] | Mapping[str, Sequence[int]] | Sequence[int] | None

POWERS_OF_TWO = tuple(1 << n for n in range(41))
_given = threading.local()


@contextmanager
def set_autotune_inputs(*tensors: Any) -> Iterator[None]:  # noqa: ANN401
    """Tune on these inputs (in the order of a call) in the ``with`` block; of this thread only."""
    values = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    before = getattr(_given, "inputs", None)
    _given.inputs = list(values)
    try:
        yield
    finally:
        _given.inputs = before


@dataclass(frozen=True)
class Asked:
    """What a call asks of the tuner.

    ``static``: compile-time values that are not tunable; ``consts`` and ``dynamic``: sizes known
    when compiling, and at the call only; ``arguments``: those of the call by name, None where there
    is no call; ``defaults``: values that run without tuning; ``scalars``: the run-time scalars of a
    call whose other arguments are not known.
    """

    op: str
    script: str | None
    static: Mapping[str, object]
    consts: Mapping[str, int]
    dynamic: Mapping[str, int]
    facts: Mapping[str, bool]
    target: Target
    device: torch.device
    build: Build
    trace: Callable[[Config], Program]
    arguments: Mapping[str, Any] | None
    defaults: Mapping[str, object]
    scalars: Mapping[str, object] = field(default_factory=dict)


class Tuner:
    """Answers for one program; ``configs``, ``manner`` and the rest as in ``autotune``."""

    facts = Specialization(fast=True)  # those of a kernel that is compiled without a call

    def __init__(
        self,
        definition: Definition,
        configs: Configs,
        manner: Manner,
        buckets: Buckets = POWERS_OF_TWO,
        do_not_specialize: Sequence[str] = (),
    ) -> None:
        self._op = definition.name
        self._statics = tuple(p.name for p in definition.signature.params if p.kind == "static")
        self._copies = definition.options.contiguous == "copy"
        self._parameters = tuple(definition.parameters)
        self._is_auto = isinstance(configs, str)
        if isinstance(configs, str) and configs != "auto":
            raise ArgumentError(f"configs: expected a list, a space or 'auto', got {configs!r}")
        self._configs = configs
        self._fixed: list[Config] | None = None
        self._offered: list[Config] = []
        if not self._is_auto and not (callable(configs) and not isinstance(configs, spaces.Space)):
            with arguments.errors_of(definition.name, "configs"):
                self._fixed = spaces.resolve(configs, self._statics, ())
        self.names = self._names(definition)
        self._manner = manner
        self._buckets = buckets
        self._ignored = frozenset(do_not_specialize)
        # Of lazy programs, whose text is not known without their arguments: in this process alone.
        self._decided: dict[str, Decision] = {}

    def _names(self, definition: Definition) -> tuple[str, ...]:
        if self._fixed is not None:
            found = dict.fromkeys(n for config in self._fixed for n in config)
            return tuple(n for n in found if n != spaces.PASS_CONFIGS)
        # What a function of the call's arguments gives is known after the call alone. Parameters
        # whose default is None are its to give; where there are none, integers with a default are,
        # and where there are none of those either, what has no default.
        open_ones = [n for n in self._statics if definition.defaults.get(n, 0) is None]
        if open_ones and not self._is_auto:
            return tuple(open_ones)
        ints = {n for n, v in definition.defaults.items() if type(v) is int}
        tunable = tuple(n for n in self._statics if n in ints)
        if tunable or self._is_auto:
            return tunable
        return tuple(n for n in self._statics if n not in definition.defaults)

    def fallbacks(self) -> list[dict[str, object]]:
        """Values for tunable parameters without a default: those of each config, in order."""
        found = [
            {n: v for n, v in config.items() if n != spaces.PASS_CONFIGS}
            for config in self._fixed or self._offered
        ]
        return found or [{}]

    def awaits_configs(self, definition: Definition) -> bool:
        """Whether parameters have no value until a function has given configs for a call."""
        is_open = any(definition.defaults.get(name) is None for name in self.names)
        return is_open and self._fixed is None and not self._is_auto

    def offers(self, op: str, inputs: Mapping[str, object], given: Container[str]) -> bool:
        """Ask the function of configs about a call: what it names is what is tuned from now on.

        False where the call gives one of those itself.
        """
        described = [_described(value) for value in inputs.values()]
        with arguments.errors_of(op, "configs"):
            self._offered = spaces.resolve(self._configs, self._statics, described)
        found = dict.fromkeys(n for config in self._offered for n in config)
        self.names = tuple(n for n in found if n != spaces.PASS_CONFIGS)
        return not any(name in given for name in self.names)

    def sample(
        self,
        values: Mapping[str, object],
        given: Container[str],
        trace: Callable[[Mapping[str, object]], Program],
    ) -> Program:
        """The program under ``values``, or where its own code refuses them, the first config's.

        Raises what ``values`` meet where no config of a fixed space helps, or one is ``given``.
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

    def is_explicit(self, names: Sequence[str] | Mapping[str, object]) -> bool:
        """Whether a call that gives ``names`` chooses its config itself."""
        return any(name in self.names for name in names)

    def bounds(self, size: str) -> tuple[int, ...] | None:
        """Upper bounds of a run-time size's buckets: () for exact values, None for one bucket."""
        if self._buckets is None or size in self._ignored:
            return None
        if callable(self._buckets):
            return ()
        if isinstance(self._buckets, Mapping):
            found = self._buckets.get(size)
            return POWERS_OF_TWO if found is None else tuple(sorted(found))
        return tuple(sorted(self._buckets))

    def bucket(self, size: str, value: int) -> object:
        """The bucket of a run-time size, as it stands in a key."""
        bounds = self.bounds(size)
        if bounds is None:
            return "any"
        if callable(self._buckets):
            return self._own_bucket(self._buckets, size, value)
        return next((bound for bound in bounds if value <= bound), "more")

    def _own_bucket(self, function: Callable[..., object], size: str, value: int) -> object:
        with arguments.errors_of(self._op, f"buckets('{size}', {value})"):
            found = function(size, value)
            try:
                return spaces.plain(found)
            except TypeError as error:
                raise ArgumentTypeError(f"buckets('{size}', {value}): {error}") from None

    def decide(self, asked: Asked) -> Decision:
        """The best config; measures where nothing is recorded (see ``deciding.decide``)."""
        configs = self._resolved(asked)
        self._check_names(asked)
        question = Question(
            key=self._key(asked),
            configs=configs,
            default=self._default(asked, configs),
            trace=asked.trace,
            inputs=functools.partial(self._inputs, asked),
            target=asked.target,
            device=asked.device,
            build=asked.build,
            sizes={**asked.consts, **asked.dynamic},
            # The script of an eager program tells its texts apart whatever the sizes.
            shares=bool(asked.script) and self._ignores_some(asked),
        )
        if asked.script or not self._ignores_some(asked):
            return decide(question, self._manner)
        found = self._decided.get(question.key.hash)
        if found is None:
            decided = decide(question, self._manner)
            found = self._decided.setdefault(question.key.hash, decided)
        return found

    def _ignores_some(self, asked: Asked) -> bool:
        return not self._ignored.isdisjoint((*asked.static, *asked.consts, *asked.dynamic))

    def _check_names(self, asked: Asked) -> None:
        sizes = (*asked.consts, *asked.dynamic)
        known = tuple(dict.fromkeys((*self._parameters, *asked.static, *sizes)))
        arguments.check_names(asked.op, "do_not_specialize", sorted(self._ignored), known)
        if isinstance(self._buckets, Mapping):
            arguments.check_names(asked.op, "buckets", tuple(self._buckets), sizes)

    def _resolved(self, asked: Asked) -> list[Config]:
        if self._fixed is not None:
            return self._fixed
        if self._is_auto:
            values = {n: v for n, v in asked.defaults.items() if n in self.names}
            return automatic.configs(asked.trace, values, asked.target)
        given = asked.arguments if asked.arguments is not None else asked.static
        described = [_described(v) for v in given.values()]
        with arguments.errors_of(asked.op, "configs"):
            return spaces.resolve(self._configs, self._statics, described)

    def _default(self, asked: Asked, configs: Sequence[Config]) -> Config | None:
        # Before a function has given its configs, any parameter may be one of theirs.
        named = {name for config in configs for name in config}
        found = {n: asked.defaults.get(n) for n in self.names if n in named}
        return None if any(v is None for v in found.values()) else dict(found)

    def _key(self, asked: Asked) -> TuningKey:
        profile, timer = self._manner.profile, self._manner.timer
        ignored = self._ignored
        static = {n: _text(v) for n, v in asked.static.items() if n not in ignored}
        facts: dict[str, Any] = {
            "static": static,
            "sizes": {n: v for n, v in asked.consts.items() if n not in ignored},
            "bucket": {n: self.bucket(n, v) for n, v in asked.dynamic.items() if n not in ignored},
            # Code for the CPU assumes none of them.
            "facts": {} if asked.target.kind == "cpu" else dict(asked.facts),
            "target": str(asked.target),
            "device": device_model(asked.device),
            "versions": {
                "codegen": sources.digest(),
                **tool_versions.of(asked.target),
            },
            "timer": None if timer is None else identity(timer),
            "checked": profile.checks,
            "backend": profile.backend,
        }
        script = asked.script
        if not script:
            script = hashlib.sha256(canonical({"op": asked.op, **static}).encode()).hexdigest()
        return TuningKey(asked.op, script, facts)

    def _inputs(self, asked: Asked, program: Program) -> Sequence[Any]:
        params = [describe_param(p) for p in program.params]
        wanted = [p for n, p in enumerate(params) if not p.is_output and n not in program.returns]
        raw = frozenset(p.name for p in program.tensors() if p.raw)
        rows = {p.name for p in program.tensors() if p.buffer.strides is None}
        copied = rows if self._copies else set()

        def checked(source: str, values: Sequence[Any]) -> list[Any]:
            arguments.check_inputs(asked.op, source, values, wanted, raw, asked.device)
            pairs = zip(values, wanted, strict=True)
            return [_detached(value, p.name in copied) for value, p in pairs]

        given = getattr(_given, "inputs", None)
        if given is not None:
            return checked("set_autotune_inputs", given)
        profile = self._manner.profile
        if profile.supply_prog is not None:
            with arguments.errors_of(asked.op, "supply_prog"):
                made = profile.supply_prog(wanted)
                single = isinstance(made, torch.Tensor) or not isinstance(made, Iterable)
                supplied = [made] if single else list(made)
            return checked("supply_prog", supplied)
        called = asked.arguments
        if called is not None and all(p.name in called for p in wanted):
            return [_detached(called[p.name], p.name in copied) for p in wanted]
        sizes = {**asked.consts, **asked.dynamic}
        is_fast = asked.facts.get("fast", True)
        known = Known(asked.op, sizes, asked.scalars, is_fast, asked.device)
        return make(program, known, profile.supply_type)


def _described(value: object) -> object:
    """A call's argument as a function of configs gets it."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return ("tensor", dtype, tuple(value.shape), tuple(value.stride()))
    return value


def _detached(value: Any, is_copied: bool) -> Any:  # noqa: ANN401
    """An argument without its gradient; contiguous where the op makes it so before it runs."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().contiguous() if is_copied else value.detach()


def _text(value: object) -> object:
    """A compile-time value in a key: itself, or for what JSON lacks the name of it."""
    try:
        return spaces.plain(value)
    except TypeError:
        return identity(value)


@functools.lru_cache(maxsize=64)
def device_model(device: torch.device) -> str:
    """The model of a GPU or of this machine's processor, as its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "cpu"
