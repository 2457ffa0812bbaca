"""What a tuning is given and gives back: how to compile, measure and search, and its result."""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tileops import log
from tileops.autotuner.search import SEARCHES
from tileops.autotuner.spaces import Config
from tileops.errors import ArgumentError, ArgumentTypeError, CacheError, InternalError, TileopsError
from tileops.ir.codec import decode_program, encode_program
from tileops.jit.captured import identity
from tileops.jit.entry_points import compile
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.provider import Build
from tileops.jit.targets import requested_target
from tileops.profiler import ALIASES, BACKENDS, TensorSupplyType

BEST_CONFIG_PATH = "best_config.json"
LATENCY_PATH = "latency.json"
OUT_IDX_PATH = "out_idx.json"
FUNCTION_PATH = "function.json"
PARAMS_PATH = "params.json"
DEVICE_KERNEL_PATH = "device_kernel.cu"
HOST_KERNEL_PATH = "host_kernel.cu"
EXECUTABLE_PATH = "executable.so"
KERNEL_LIB_PATH = "kernel_lib.so"
KERNEL_CUBIN_PATH = "kernel.cubin"
KERNEL_PY_PATH = "kernel.py"

# (config, kernel, inputs) -> milliseconds.
Timer = Callable[[Config, JITKernel, Sequence[Any]], float]
# How run-time sizes are put together: upper bounds, also by name, or a function of name and size;
# None: each size has one bucket.
Buckets = Callable[[str, int], object] | Mapping[str, Sequence[int]] | Sequence[int] | None

POWERS_OF_TWO = tuple(1 << n for n in range(41))

_CHOICES = {
    "search": tuple(SEARCHES),
    "tune": ("first_call", "never"),
    "backend": (*BACKENDS, *ALIASES),
}
_RUNS = ("warmup", "rep")  # whole numbers
_NUMBERS = {
    "warmup": (0, math.inf),
    "rep": (1, math.inf),
    "timeout": (0.0, math.inf),
    "rtol": (0.0, math.inf),
    "atol": (0.0, math.inf),
    "max_mismatched_ratio": (0.0, 1.0),
}
_FUNCTIONS = ("ref_prog", "supply_prog", "manual_check_prog", "timer")

# Files of an entry by the names that they are saved under.
_SAVED = {
    "kernel.py": KERNEL_PY_PATH,
    "device_kernel.cpp": DEVICE_KERNEL_PATH,
    "launch0.cubin": KERNEL_CUBIN_PATH,
    "kernel_lib.so": KERNEL_LIB_PATH,
}


def _hash(arguments: object) -> int:
    """Equal arguments hash alike: mappings, whose order says nothing, are left out."""
    values = vars(arguments).values()
    return hash(tuple(str(v) for v in values if not isinstance(v, Mapping)))


@dataclass(frozen=True)
class CompileArgs:
    """How configs are compiled; each as in ``tileops.compile``. None leaves it to the program."""

    out_idx: list[int] | int | None = None
    execution_backend: str = "auto"
    target: Any = "auto"
    target_host: Any = None
    verbose: bool = False
    pass_configs: Mapping[Any, object] | None = None

    __hash__ = _hash

    def compile_program(self, program: object) -> JITKernel:
        """The kernel of a ``T.prim_func`` under these arguments."""
        return compile(program, **vars(self))


@dataclass(frozen=True)
class ProfileArgs:
    """How configs are measured and checked.

    ``warmup`` and ``rep`` count runs; ``timeout`` is in seconds for each config, 0 for no limit.
    ``ref_prog(*inputs)`` gives the right results; more than ``max_mismatched_ratio`` of the
    elements off by ``atol + rtol * |reference|`` makes a config wrong. ``manual_check_prog``,
    called with (results, reference results), replaces that comparison. ``supply_prog(params)``
    makes the inputs. ``backend`` is that of ``do_bench``.
    """

    warmup: int = 25
    rep: int = 100
    timeout: float = 30
    backend: str = "event"
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = True

    __hash__ = _hash

    @property
    def checks(self) -> bool:
        """Whether results are compared with a reference."""
        return self.ref_prog is not None and not self.skip_check


@dataclass(frozen=True)
class TuningOptions(ProfileArgs):
    """How a tuning measures, checks and searches; see ``autotune`` for each field.

    ``early_stop_factor`` None: every config is timed. ArgumentError or ArgumentTypeError naming the
    first invalid field.
    """

    early_stop_factor: float | None = None
    timer: Timer | None = None
    search: str = "exhaustive"
    budget: float | None = None
    tune: str = "first_call"
    devices: str | Sequence[Any] | None = None
    buckets: Buckets = POWERS_OF_TWO
    do_not_specialize: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ArgumentError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
        for name, (low, high) in _NUMBERS.items():
            _check_number(name, getattr(self, name), low, high)
        if self.early_stop_factor is not None:
            _check_number("early_stop_factor", self.early_stop_factor, 1.0, math.inf)
        for name in _FUNCTIONS:
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ArgumentTypeError(f"{name}: expected a function, got {value!r}")
        if not isinstance(self.supply_type, TensorSupplyType):
            raise ArgumentTypeError(
                f"supply_type: expected a TensorSupplyType, got {self.supply_type!r}"
            )
        is_number = isinstance(self.budget, (int, float)) and not isinstance(self.budget, bool)
        if self.budget is not None and not (is_number and self.budget > 0):
            raise ArgumentError(
                f"budget: expected a positive number of seconds, got {self.budget!r}"
            )
        if self.devices is not None and self.devices != "all":
            _devices(self.devices)
        _check_buckets(self.buckets)

    @property
    def timeout_s(self) -> float:
        """Seconds that each step of one config may take."""
        return self.timeout or float(10**9)

    @property
    def check_identity(self) -> str:
        """Tells one way of checking from another, in every process; empty where none is done."""
        if not self.checks:
            return ""
        limits = (self.rtol, self.atol, self.max_mismatched_ratio)
        manual = "" if self.manual_check_prog is None else identity(self.manual_check_prog)
        text = f"{identity(self.ref_prog)} {manual or limits}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def measuring_devices(self, own: torch.device) -> tuple[torch.device, ...]:
        """Where to measure for a call on ``own``, which comes first; only GPUs are several."""
        if self.devices is None or own.type != "cuda":
            return (own,)
        if self.devices == "all":
            model = torch.cuda.get_device_name(own)
            every = [torch.device("cuda", n) for n in range(torch.cuda.device_count())]
            return (own, *(d for d in every if d != own and torch.cuda.get_device_name(d) == model))
        return (own, *(d for d in _devices(self.devices) if d != own))


@dataclass
class AutotuneResult:
    """A tuning's end: ``latency`` and ``ref_latency`` in milliseconds, ``libcode`` the text."""

    latency: float | None = None
    config: dict[str, Any] | None = None
    ref_latency: float | None = None
    libcode: str | None = None
    func: Any = None
    kernel: JITKernel | None = None

    def __hash__(self) -> int:
        return hash((self.latency, self.ref_latency))

    def save_to_disk(self, path: str | Path, verbose: bool = False) -> None:
        """Write the result into the folder ``path``: config, latency, program, text and binary.

        ArgumentError for a result without a kernel.
        """
        if self.kernel is None:
            raise ArgumentError("save_to_disk: the result holds no kernel")
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        kernel = self.kernel
        build = {"name": kernel.name.rpartition("__")[0], "target": str(kernel.target)}
        times = {"latency": self.latency, "ref_latency": self.ref_latency}
        texts = {
            BEST_CONFIG_PATH: json.dumps(self.config, indent=1, sort_keys=True),
            LATENCY_PATH: json.dumps(times, indent=1),
            OUT_IDX_PATH: json.dumps(kernel.out_idx),
            FUNCTION_PATH: json.dumps({**build, "program": encode_program(kernel.prim_func)}),
            PARAMS_PATH: kernel.artifact.text("params.json"),
            HOST_KERNEL_PATH: kernel.get_host_source(),
        }
        files = {name: text.encode() for name, text in texts.items()}
        own = kernel.artifact.files
        files.update({saved: own[name] for name, saved in _SAVED.items() if name in own})
        for name, data in files.items():
            (folder / name).write_bytes(data)
            if verbose:
                log.write(f"wrote {folder / name}")

    @classmethod
    def load_from_disk(
        cls, path: str | Path, compile_args: CompileArgs | None = None
    ) -> AutotuneResult:
        """The result that ``save_to_disk`` wrote; its kernel comes from the cache or is compiled.

        ``compile_args.target`` other than ``auto`` replaces the saved target. CacheError for a
        folder that holds no sound result.
        """
        folder = Path(path)
        try:
            names = (FUNCTION_PATH, BEST_CONFIG_PATH, LATENCY_PATH)
            texts = [(folder / name).read_text(encoding="utf-8") for name in names]
            function, config, times = map(json.loads, texts)
            program = decode_program(function["program"])
            name, target = str(function["name"]), function["target"]
            latency, ref_latency = times["latency"], times["ref_latency"]
            if not isinstance(config, (dict, type(None))):
                raise TypeError(f"{BEST_CONFIG_PATH} is not a config")
        except (OSError, ValueError, LookupError, TypeError, InternalError) as error:
            raise CacheError(f"{folder} holds no tuning result: {error}") from error
        if compile_args is not None and compile_args.target not in (None, "auto"):
            target = compile_args.target
        kernel = make_kernel(name, program, Build(requested_target(target)))
        return cls(latency, config, ref_latency, kernel.get_kernel_source(), program, kernel)


# -- checks ----------------------------------------------------------------------------------------
def _check_number(name: str, value: object, least: float, most: float) -> None:
    kind, unit = (numbers.Integral, " runs") if name in _RUNS else (numbers.Real, "")
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ArgumentTypeError(f"{name}: expected a number{unit and ' of runs'}, got {value!r}")
    if not least <= float(value) <= most:
        limit = f"{least:g}{unit} or more" if most == math.inf else f"{least:g} to {most:g}"
        raise ArgumentError(f"{name}: expected {limit}, got {value!r}")


def _devices(given: object) -> list[torch.device]:
    """The devices that are meant; ArgumentError or ArgumentTypeError for what is not one."""
    if not isinstance(given, (list, tuple)):
        raise ArgumentError(f"devices: expected 'all' or a list of devices, got {given!r}")
    found = []
    for device in given:
        if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
            raise ArgumentTypeError(
                f"devices: expected 'cuda:1', 1 or a torch.device, got {device!r}"
            )
        try:
            found.append(
                torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
            )
        except RuntimeError as error:
            raise ArgumentError(f"devices: {str(error).splitlines()[0]}") from None
    return found


def _check_buckets(buckets: object) -> None:
    if buckets is None or callable(buckets):
        return
    for name, bounds in buckets.items() if isinstance(buckets, Mapping) else [("", buckets)]:
        place = f"buckets[{name!r}]" if isinstance(buckets, Mapping) else "buckets"
        if isinstance(bounds, (str, Mapping)) or not isinstance(bounds, Sequence) or not bounds:
            raise ArgumentTypeError(f"{place}: expected a list of upper bounds, got {bounds!r}")
        for bound in bounds:
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
                raise ArgumentError(f"{place}: expected whole numbers, 0 or more, got {bound!r}")


@contextmanager
def errors_of(op: str, argument: str) -> Iterator[None]:
    """Say of which op and argument an error is; what a user's function raises becomes one."""
    try:
        yield
    except (ArgumentError, ArgumentTypeError) as error:
        if str(error).startswith("op "):
            raise
        raise type(error)(f"op {op}: {error}") from error
    except TileopsError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"op {op}: {argument} raised {type(error).__name__}: {error}"
        ) from error
