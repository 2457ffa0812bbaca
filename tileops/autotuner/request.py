"""The tuner of one program: from what a call asks for to the request that a session answers."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tileops.autotuner import spaces
from tileops.autotuner.checking import identity
from tileops.autotuner.database import TuningKey
from tileops.autotuner.inputs import check_inputs, make
from tileops.autotuner.param import POWERS_OF_TWO, TuningOptions, errors_of
from tileops.autotuner.session import TuningResult, TuningSession
from tileops.autotuner.spaces import Config, Configs, canonical
from tileops.cache import sources
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.jit import tool_versions
from tileops.jit.kernel import describe_param

if TYPE_CHECKING:
    from tileops.ir.program import Program
    from tileops.jit.definition import Definition
    from tileops.jit.provider import Build
    from tileops.target import Target

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
class TuningRequest:
    """What a call asks of the tuner.

    ``trace`` gives the program under a config. ``static``: compile-time values that are not
    tunable; ``consts`` and ``dynamic``: sizes known when compiling, and at the call only;
    ``arguments``: those of the call by name, None where there is no call; ``defaults``: values that
    run without tuning; ``scalars``: the run-time scalars of a call whose other arguments are not
    known; ``script``: the hash of an eager program's text.
    """

    op: str
    script: str | None
    static: Mapping[str, object]
    target: Target
    device: torch.device
    build: Build
    trace: Callable[[Config], Program]
    defaults: Mapping[str, object]
    consts: Mapping[str, int] = field(default_factory=dict)
    dynamic: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, Any] | None = None
    scalars: Mapping[str, object] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """All sizes of the call."""
        return {**self.consts, **self.dynamic}


class Tuner:
    """Answers the requests of one program; ``configs`` and ``options`` as in ``autotune``."""

    def __init__(self, definition: Definition, configs: Configs, options: TuningOptions) -> None:
        self.options = options
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
            with errors_of(definition.name, "configs"):
                self._fixed = spaces.resolve(configs, self._statics, ())
        self.names = self._names(definition)
        self._ignored = frozenset(options.do_not_specialize)
        # For lazy programs, whose text is not known without their arguments: in this process only.
        self._decided: dict[str, TuningResult] = {}

    def _names(self, definition: Definition) -> tuple[str, ...]:
        if self._fixed is not None:
            found = dict.fromkeys(n for config in self._fixed for n in config)
            return tuple(n for n in found if n != spaces.PASS_CONFIGS)
        # What a function of configs gives is only known after a call. It gives the parameters whose
        # default is None; where there are none, integers with a default; where there are none of
        # those either, what has no default.
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

    def offers(self, inputs: Mapping[str, object], given: Container[str]) -> bool:
        """Ask the function of configs about a call: what it names is what is tuned from now on.

        False where the call gives one of those itself.
        """
        self._offered = self._offer(inputs)
        found = dict.fromkeys(n for config in self._offered for n in config)
        self.names = tuple(n for n in found if n != spaces.PASS_CONFIGS)
        return not any(name in given for name in self.names)

    def _offer(self, inputs: Mapping[str, object]) -> list[Config]:
        """The configs that the function of configs gives for a call."""
        described = [_described(value) for value in inputs.values()]
        with errors_of(self._op, "configs"):
            return spaces.resolve(self._configs, self._statics, described)

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

    def is_explicit(self, names: Iterable[str]) -> bool:
        """Whether a call that gives ``names`` chooses its config itself."""
        return any(name in self.names for name in names)

    def bounds(self, size: str) -> tuple[int, ...] | None:
        """Upper bounds of a run-time size's buckets: () for exact values, None for one bucket."""
        buckets = self.options.buckets
        if buckets is None or size in self._ignored:
            return None
        if callable(buckets):
            return ()
        if isinstance(buckets, Mapping):
            return tuple(sorted(buckets.get(size, POWERS_OF_TWO)))
        return tuple(sorted(buckets))

    def _bucket(self, size: str, value: int) -> object:
        """The bucket of a run-time size, as it stands in a key."""
        bounds, buckets = self.bounds(size), self.options.buckets
        if bounds is None:
            return "any"
        if not callable(buckets):
            return next((bound for bound in bounds if value <= bound), "more")
        place = f"buckets('{size}', {value})"
        with errors_of(self._op, place):
            found = buckets(size, value)
            try:
                return spaces.plain(found)
            except TypeError as error:
                raise ArgumentTypeError(f"{place}: {error}") from None

    def decide(self, request: TuningRequest) -> TuningResult:
        """The best config; measures where nothing is recorded (see ``TuningSession.run``)."""
        session = TuningSession(self, request)
        if request.script or not self.ignores_some(request):
            return session.run()
        found = self._decided.get(session.key.hash)
        return found or self._decided.setdefault(session.key.hash, session.run())

    # -- what a session asks -----------------------------------------------------------------------
    def ignores_some(self, request: TuningRequest) -> bool:
        """Whether requests that differ from this one have its key."""
        return not self._ignored.isdisjoint((*request.static, *request.sizes))

    def space(self, request: TuningRequest) -> list[Config]:
        """The configs of a request; ArgumentError where names in the options are unknown."""
        known = tuple(dict.fromkeys((*self._parameters, *request.static, *request.sizes)))
        _check_names(request.op, "do_not_specialize", sorted(self._ignored), known)
        if isinstance(self.options.buckets, Mapping):
            _check_names(request.op, "buckets", tuple(self.options.buckets), tuple(request.sizes))
        if self._fixed is not None:
            return self._fixed
        if self._is_auto:
            values = {n: v for n, v in request.defaults.items() if n in self.names}
            return spaces.automatic(request.trace, values, request.target)
        given = request.arguments if request.arguments is not None else request.static
        return self._offer(given)

    def default(self, request: TuningRequest, configs: Sequence[Config]) -> Config | None:
        """The config that runs without tuning, None where a parameter has no value."""
        # Before a function has given its configs, any parameter may be one of theirs.
        named = {name for config in configs for name in config}
        found = {n: request.defaults.get(n) for n in self.names if n in named}
        return None if any(v is None for v in found.values()) else dict(found)

    def key(self, request: TuningRequest) -> TuningKey:
        """What the result of a request is good for."""
        options, ignored = self.options, self._ignored
        static = {n: _text(v) for n, v in request.static.items() if n not in ignored}
        bucket = {n: self._bucket(n, v) for n, v in request.dynamic.items() if n not in ignored}
        facts: dict[str, Any] = {
            "static": static,
            "sizes": {n: v for n, v in request.consts.items() if n not in ignored},
            "bucket": bucket,
            # Code for the CPU does not depend on them.
            "facts": {} if request.target.kind == "cpu" else dict(request.facts),
            "target": str(request.target),
            "device": device_model(request.device),
            "versions": {"codegen": sources.digest(), **tool_versions.of(request.target)},
            "timer": None if options.timer is None else identity(options.timer),
            "checked": options.checks,
            "backend": options.backend,
        }
        script = request.script
        if not script:
            script = hashlib.sha256(canonical({"op": request.op, **static}).encode()).hexdigest()
        return TuningKey(request.op, script, facts)

    def inputs(self, request: TuningRequest, program: Program) -> Sequence[Any]:
        """Arguments to tune on: those given for it, supplied, of the call, or made."""
        params = [describe_param(p) for p in program.params]
        wanted = [p for n, p in enumerate(params) if not p.is_output and n not in program.returns]
        raw = {p.name for p in program.tensors() if p.raw}
        rows = {p.name for p in program.tensors() if p.buffer.strides is None}
        copied = rows if self._copies else set()

        def checked(source: str, values: Sequence[Any]) -> list[Any]:
            check_inputs(request.op, source, values, wanted, raw, request.device)
            pairs = zip(values, wanted, strict=True)
            return [_detached(value, p.name in copied) for value, p in pairs]

        given, supply = getattr(_given, "inputs", None), self.options.supply_prog
        if given is not None:
            return checked("set_autotune_inputs", given)
        if supply is not None:
            with errors_of(request.op, "supply_prog"):
                made = supply(wanted)
                single = isinstance(made, torch.Tensor) or not isinstance(made, Iterable)
                supplied = [made] if single else list(made)
            return checked("supply_prog", supplied)
        called = request.arguments
        if called is not None and all(p.name in called for p in wanted):
            return [_detached(called[p.name], p.name in copied) for p in wanted]
        return make(program, request, self.options.supply_type)


def _check_names(op: str, argument: str, names: Sequence[str], known: Sequence[str]) -> None:
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
