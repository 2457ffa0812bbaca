"""The tuner of one program: the space, the key and the inputs of what a call asks for."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tileops.autotuner import spaces
from tileops.autotuner.checking import identity
from tileops.autotuner.database import TuningKey
from tileops.autotuner.param import POWERS_OF_TWO, TuningOptions, errors_of
from tileops.autotuner.recipes import span
from tileops.autotuner.session import TuningResult, TuningSession
from tileops.autotuner.spaces import Config, Configs, canonical
from tileops.cache import sources
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir import fold
from tileops.ir.expr import Expr, Var
from tileops.ir.program import TensorParam, const_value
from tileops.ir.walk import walk_expr
from tileops.jit import tool_versions
from tileops.jit.kernel import describe_param
from tileops.op.variant import pack_of
from tileops.profiler import TensorSupplyType, fill

if TYPE_CHECKING:
    from tileops.ir.program import Program
    from tileops.jit.definition import Definition
    from tileops.jit.eager import Choice
    from tileops.op.registration import Buckets
    from tileops.op.variant import Variant

_INDICES = (torch.int32, torch.int64)


class _OfThread(threading.local):
    """The inputs of ``set_autotune_inputs``, and the call of a tuned program in progress."""

    inputs: list[Any] | None = None
    call: tuple[Any, Sequence[Any], Mapping[str, Any]] | None = None  # program and arguments


of_thread = _OfThread()


@contextmanager
def set_autotune_inputs(*tensors: Any) -> Iterator[None]:  # noqa: ANN401
    """Tune on these inputs (in the order of a call) in the ``with`` block; of this thread only."""
    values = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    before, of_thread.inputs = of_thread.inputs, list(values)
    try:
        yield
    finally:
        of_thread.inputs = before


class Tuner:
    """Chooses for one program (see ``jit.eager.Tuning``); ``configs`` and ``options`` as given."""

    def __init__(self, definition: Definition, configs: Configs, options: TuningOptions) -> None:
        self.options = options
        self._definition = definition
        self._statics = tuple(p.name for p in definition.signature.params if p.kind == "static")
        self._is_auto = isinstance(configs, str)
        if isinstance(configs, str) and configs != "auto":
            raise ArgumentError(f"configs: expected a list, a space or 'auto', got {configs!r}")
        self._configs = configs
        self._fixed: list[Config] | None = None
        self._offered: list[Config] = []
        if not self._is_auto and not callable(configs):
            self._fixed = self._resolved(())
        self.names = self._tunable() if self._fixed is None else _named(self._fixed)
        self._ignored = frozenset(options.do_not_specialize)
        # For lazy programs, whose text is not known without their arguments: in this process only.
        self._decided: dict[str, TuningResult] = {}

    def _resolved(self, arguments: Iterable[object]) -> list[Config]:
        """The given configs; a function of them gets the arguments of a call."""
        with errors_of(self._definition.name, "configs"):
            return spaces.resolve(self._configs, self._statics, [*map(_described, arguments)])

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
        configs = self._fixed or self._offered or [{}]
        return [{n: v for n, v in c.items() if n != spaces.PASS_CONFIGS} for c in configs]

    def awaits_configs(self, definition: Definition) -> bool:
        """Whether parameters have no value until a function has given configs for a call."""
        is_open = any(definition.defaults.get(name) is None for name in self.names)
        return is_open and self._fixed is None and not self._is_auto

    def offers(self, inputs: Mapping[str, object], given: Container[str]) -> bool:
        """Ask the function of configs about a call: what it names is what is tuned from now on.

        False where the call gives one of those itself.
        """
        self._offered = self._resolved(inputs.values())
        self.names = _named(self._offered)
        return not any(name in given for name in self.names)

    # -- jit.eager.Tuning --------------------------------------------------------------------------
    def choose(self, choice: Choice) -> Mapping[str, Any]:
        """The best config for what a call asks, the default where none can be found."""
        if choice.device is None or not self.is_needed(choice.given):
            return {}
        return self.decide(replace(choice, arguments=_called(choice.definition))).config

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
        """The best config; measures where nothing is recorded (see ``TuningSession.run``)."""
        session = TuningSession(self, choice)
        if choice.script or not self.ignores_some(choice):
            return session.run()
        found = self._decided.get(session.key.hash)
        return found or self._decided.setdefault(session.key.hash, session.run())

    # -- what a session asks -----------------------------------------------------------------------
    def ignores_some(self, choice: Choice) -> bool:
        """Whether other choices than this one have its key."""
        return not self._ignored.isdisjoint((*self._static(choice), *choice.all_sizes))

    def _static(self, choice: Choice) -> dict[str, object]:
        """The compile-time values that are not tunable."""
        return {n: v for n, v in choice.values.items() if n not in self.names}

    def space(self, choice: Choice) -> list[Config]:
        """The configs to choose from; ArgumentError where names in the options are unknown."""
        op, static, sizes = choice.op, self._static(choice), tuple(choice.all_sizes)
        known = tuple(dict.fromkeys((*self._definition.parameters, *static, *sizes)))
        _check_names(op, "do_not_specialize", sorted(self._ignored), known)
        if isinstance(self.options.buckets, Mapping):
            _check_names(op, "buckets", self.options.buckets, sizes)
        if self._fixed is not None:
            return self._fixed
        if self._is_auto:
            values = {n: v for n, v in choice.values.items() if n in self.names}
            return spaces.automatic(choice.trace, values, choice.target)
        return self._resolved((static if choice.arguments is None else choice.arguments).values())

    def default(self, choice: Choice, configs: Sequence[Config]) -> Config | None:
        """The config that runs without tuning, None where a parameter has no value."""
        # Before a function has given its configs, any parameter may be one of theirs.
        named = {name for config in configs for name in config}
        found = {n: choice.values.get(n) for n in self.names if n in named}
        return None if any(v is None for v in found.values()) else found

    def key(self, choice: Choice) -> TuningKey:
        """What the result of a choice is good for."""
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

    # -- inputs ------------------------------------------------------------------------------------
    def inputs(self, choice: Choice, program: Program) -> Sequence[Any]:
        """Arguments to tune on: those given for it, supplied, of the call, or made."""
        params = [describe_param(p) for p in program.params]
        wanted = [p for n, p in enumerate(params) if not p.is_output and n not in program.returns]
        raw = {p.name for p in program.tensors() if p.raw}
        copies = self._definition.options.contiguous == "copy"
        copied = {p.name for p in program.tensors() if copies and p.buffer.strides is None}

        def detached(values: Iterable[Any]) -> list[Any]:
            found = [v.detach() if isinstance(v, torch.Tensor) else v for v in values]
            # The op makes these contiguous before it runs.
            pairs = zip(found, wanted, strict=True)
            return [v.contiguous() if p.name in copied else v for v, p in pairs]

        def checked(source: str, values: Sequence[Any]) -> list[Any]:
            check_inputs(choice.op, source, values, wanted, raw, choice.torch_device)
            return detached(values)

        supply, called = self.options.supply_prog, choice.arguments
        if of_thread.inputs is not None:
            return checked("set_autotune_inputs", of_thread.inputs)
        if supply is not None:
            with errors_of(choice.op, "supply_prog"):
                made = supply(wanted)
                single = isinstance(made, torch.Tensor) or not isinstance(made, Iterable)
                supplied = [made] if single else list(made)
            return checked("supply_prog", supplied)
        if called is not None and all(p.name in called for p in wanted):
            return detached(called[p.name] for p in wanted)
        return _made(program, choice, self.options.supply_type)


def _named(configs: Iterable[Config]) -> tuple[str, ...]:
    """The tunable parameters of some configs."""
    found = dict.fromkeys(n for config in configs for n in config)
    return tuple(n for n in found if n != spaces.PASS_CONFIGS)


def _called(definition: Definition) -> dict[str, Any] | None:
    """The arguments of the call in progress by name; None for one that came by torch alone."""
    if of_thread.call is None or of_thread.call[0].definition is not definition:
        return None
    program, args, kwargs = of_thread.call
    try:
        inputs, _, _ = program._split(args, kwargs)
    except TypeError:
        return None
    return dict(zip(definition.inputs, inputs, strict=True))


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


@functools.lru_cache(maxsize=64)
def device_model(device: torch.device) -> str:
    """The model of a GPU or of this machine's processor, as its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "cpu"


# -- inputs that come without a call ---------------------------------------------------------------
_ELSEWHERE = "give inputs by set_autotune_inputs or supply_prog"


def _made(program: Program, choice: Choice, supply: TensorSupplyType) -> list[Any]:
    """Arguments of a call of ``program``, in order: shapes, strides and scalars as chosen for.

    ArgumentError naming what is not known.
    """
    found: list[Any] = []
    for number, param in enumerate(program.params):
        if isinstance(param, TensorParam):
            if not param.allocated and number not in program.returns:
                found.append(_tensor(param, choice, supply))
        elif param.name in choice.scalars:
            found.append(choice.scalars[param.name])
        else:
            raise ArgumentError(
                f"op {choice.op} is not tuned for these arguments, and nothing tells the tuner "
                f"the scalar '{param.name}'; call it once before, or {_ELSEWHERE}"
            )
    return found


def _tensor(param: TensorParam, choice: Choice, supply: TensorSupplyType) -> torch.Tensor:
    if param.raw:
        raise ArgumentError(
            f"op {choice.op}: tuning cannot make the tensor '{param.name}', of which the program "
            f"takes the address alone; call the tuned function, or {_ELSEWHERE}"
        )
    dtype, device = describe_param(param).dtype, choice.torch_device
    shape = [_number(extent, param, choice) for extent in param.buffer.shape]
    if (pack := pack_of(param.buffer.dtype)) > 1:
        shape[-1] //= pack
        return fill(shape, dtype, supply, device)
    if param.buffer.strides is None:
        stride = list(torch.empty(shape, device="meta").stride())
    else:
        stride = [_number(step, param, choice) for step in param.buffer.strides]
    # One element past an aligned address is not aligned.
    shift = 0 if choice.facts is None or choice.facts.fast else 1
    extent = span(shape, stride) + shift
    if supply == TensorSupplyType.Auto and dtype in _INDICES:
        # They may be indices or lengths; 0 and 1 are valid nearly everywhere.
        row = torch.randint(0, 2, (extent,), dtype=dtype, device=device)
    else:
        row = fill((extent,), dtype, supply, device)
    return torch.as_strided(row[shift:], shape, stride)


def _number(expr: Expr, param: TensorParam, choice: Choice) -> int:
    known = choice.all_sizes
    sizes = {
        e.id: fold.const(known[e.name], e.dtype)
        for e in walk_expr(expr)
        if isinstance(e, Var) and e.name in known
    }
    found = const_value(fold.substitute(expr, sizes))
    if found is None:
        raise ArgumentError(
            f"op {choice.op}: tuning cannot make the tensor '{param.name}': an extent or stride "
            f"is not known; {_ELSEWHERE}"
        )
    return found


def check_inputs(
    op: str,
    source: str,
    given: Sequence[Any],
    params: Sequence[Any],
    raw: Container[str],
    device: torch.device,
) -> None:
    """ArgumentError or ArgumentTypeError where inputs from ``source`` are not what ``params`` take.

    Only what every config takes alike is checked: how many, which are tensors, on what kind of
    device, dtypes, and fixed extents (the last two not of the tensors ``raw``, of which any do).
    """
    if len(given) != len(params):
        names = ", ".join(p.name for p in params)
        raise ArgumentError(
            f"op {op}: {source} gave {len(given)} inputs, the program takes {len(params)} ({names})"
        )
    for value, param in zip(given, params, strict=True):
        misfit = _misfit(value, param, param.name in raw, device)
        if misfit is not None:
            kind, got, wanted = misfit
            raise kind(f"op {op}: {source} gave {got} for '{param.name}', expected {wanted}")


def _misfit(
    value: Any,  # noqa: ANN401
    param: Any,  # noqa: ANN401
    is_raw: bool,
    device: torch.device,
) -> tuple[type[ArgumentError | ArgumentTypeError], str, str] | None:
    """Why ``param`` does not take a value: the error, what was given, and what is expected."""
    is_tensor = isinstance(value, torch.Tensor)
    if is_tensor == param.is_scalar:
        wanted = "a number" if param.is_scalar else "a tensor"
        return ArgumentTypeError, type(value).__name__, wanted
    if is_tensor and value.device.type != device.type:
        return ArgumentError, f"a tensor on {value.device}", f"one on {device}"
    if not is_tensor or is_raw:
        return None
    # One-byte dtypes stand for each other, as in the call itself.
    is_byte = value.dtype.itemsize == param.dtype.itemsize == 1
    if value.dtype != param.dtype and not is_byte:
        return ArgumentTypeError, f"a tensor of {value.dtype}", f"{param.dtype}"
    if not _fits(tuple(value.shape), param.shape):
        wanted = ", ".join(map(str, param.shape))
        return ArgumentError, f"a tensor of shape {tuple(value.shape)}", f"({wanted})"
    return None


def _fits(shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> bool:
    if wanted and wanted[0] == "...":
        rest = wanted[1:]
        count = len(shape) - len(rest)
        return count >= 0 and _fits(shape[count:], rest)
    return len(shape) == len(wanted) and all(
        isinstance(w, str) or n == w for n, w in zip(shape, wanted, strict=True)
    )
