"""Owns what a tuning is given and gives back: arguments of compiling and of measuring, a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tileops import log
from tileops.errors import ArgumentError, CacheError, InternalError
from tileops.ir.codec import decode_program, encode_program
from tileops.jit.entry_points import compile
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.provider import Build
from tileops.jit.targets import requested_target
from tileops.profiler import TensorSupplyType

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

_SOURCES = {"kernel.py": KERNEL_PY_PATH, "device_kernel.cpp": DEVICE_KERNEL_PATH}


def _digestible(value: object) -> object:
    """A field's value as text that tells values apart."""
    if isinstance(value, Mapping):
        return {str(k): _digestible(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_digestible(v) for v in value]
    if callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', value)}"
    return str(value)


class _Hashed:
    """Equal arguments hash alike, whatever their fields hold."""

    def _text(self) -> str:
        found = {f.name: _digestible(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        return json.dumps(found, sort_keys=True)

    def __hash__(self) -> int:
        return hash(self._text())


@dataclass(frozen=True)
class CompileArgs(_Hashed):
    """How configs are compiled; each as in ``tileops.compile``. None leaves it to the program."""

    out_idx: list[int] | int | None = None
    execution_backend: str = "auto"
    target: Any = "auto"
    target_host: Any = None
    verbose: bool = False
    pass_configs: Mapping[Any, object] | None = None

    __hash__ = _Hashed.__hash__

    def compile_program(self, program: object) -> JITKernel:
        """The kernel of a ``T.prim_func`` under these arguments."""
        return compile(
            program,
            out_idx=self.out_idx,
            execution_backend=self.execution_backend,
            target=self.target,
            target_host=self.target_host,
            verbose=self.verbose,
            pass_configs=self.pass_configs,
        )


@dataclass(frozen=True)
class ProfileArgs(_Hashed):
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

    __hash__ = _Hashed.__hash__

    @property
    def checks(self) -> bool:
        """Whether results are compared with a reference."""
        return self.ref_prog is not None and not self.skip_check


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
        return hash((json.dumps(_digestible(self.config), sort_keys=True), self.latency))

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
        texts = {
            BEST_CONFIG_PATH: json.dumps(self.config, indent=1, sort_keys=True),
            LATENCY_PATH: json.dumps(
                {"latency": self.latency, "ref_latency": self.ref_latency}, indent=1
            ),
            OUT_IDX_PATH: json.dumps(kernel.out_idx),
            FUNCTION_PATH: json.dumps({**build, "program": encode_program(kernel.prim_func)}),
            PARAMS_PATH: kernel.artifact.text("params.json"),
            HOST_KERNEL_PATH: kernel.get_host_source(),
        }
        files = {name: text.encode() for name, text in texts.items()}
        for name, data in kernel.artifact.files.items():
            if name in _SOURCES:
                files[_SOURCES[name]] = data
            elif name in ("launch0.cubin", KERNEL_LIB_PATH):
                files[KERNEL_CUBIN_PATH if name.endswith("cubin") else name] = data
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
            function = json.loads((folder / FUNCTION_PATH).read_text(encoding="utf-8"))
            config = json.loads((folder / BEST_CONFIG_PATH).read_text(encoding="utf-8"))
            times = json.loads((folder / LATENCY_PATH).read_text(encoding="utf-8"))
            program = decode_program(function["program"])
            name, target = str(function["name"]), function["target"]
            latency, ref_latency = times["latency"], times["ref_latency"]
            if not isinstance(config, (dict, type(None))):
                raise TypeError(f"{BEST_CONFIG_PATH} is no config")
        except (OSError, ValueError, LookupError, TypeError, InternalError) as error:
            raise CacheError(f"{folder} holds no tuning result: {error}") from error
        if compile_args is not None and compile_args.target not in (None, "auto"):
            target = compile_args.target
        kernel = make_kernel(name, program, Build(requested_target(target)))
        return cls(latency, config, ref_latency, kernel.get_kernel_source(), program, kernel)
