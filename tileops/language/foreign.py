"""Kernels in CUDA C++, PTX or compiled code, as programs launch them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tileops.dtypes import DType
from tileops.errors import ArgumentError, ArgumentTypeError, ProgramTypeError, ProgramValueError
from tileops.foreign.device_sources import (
    CubinSource,
    CudaSource,
    DeviceSource,
    PtxSource,
    cuda_source,
    kept_parts,
)
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Var
from tileops.ir.extern import Extern as ExternLaunch
from tileops.ir.extern import ExternArg
from tileops.language.buffers import BufferRef
from tileops.language.extern import Describing, Recorder, open_recorder
from tileops.language.value import as_dtype, as_int, as_tuple, describe, is_scalar, to_expr

__all__ = ["cpp"]

_CPP = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
    "uint64": "unsigned long long", "float16": "__half", "bfloat16": "__nv_bfloat16",
    "float32": "float", "float64": "double", "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}  # fmt: skip
_MOST_THREADS = 1024


def cpp(value: object) -> str:
    """A dtype, number or truth value as CUDA C++ writes it: ``__half``, ``8``, ``true``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    number = as_int(value)
    if number is not None:
        return str(number)
    kind = as_dtype(value)
    if kind not in _CPP:
        raise ProgramTypeError("a dtype that CUDA C++ has no name for", found=str(kind))
    return _CPP[kind]


@dataclass(frozen=True)
class ForeignSource:
    """Foreign code: ``source[name]`` is one of its kernels."""

    source: DeviceSource

    def __getitem__(self, name: str) -> ForeignKernel:
        """The kernel of this name; of CUDA C++ any name expression, ``"scale<float, 4>"``."""
        if not isinstance(name, str):
            raise ArgumentTypeError(f"a kernel's name is a text, not {name!r:.80}")
        return ForeignKernel(self.source, " ".join(name.split()))


@dataclass(frozen=True)
class ForeignKernel:
    """One kernel of foreign code."""

    source: DeviceSource
    name: str

    def launch(
        self,
        *,
        grid: object,
        block: object,
        shared: object = 0,
        cluster: int = 1,
        cooperative: bool = False,
        dependent: bool = False,
    ) -> Launch:
        """A launch inside ``with T.Extern():``; call the result with the kernel's arguments.

        ``grid`` and ``block`` have 1 to 3 extents; ``shared`` is dynamic shared memory in bytes.
        ``grid`` counts blocks, or clusters where ``cluster`` is more than 1. ``cooperative``: all
        blocks run at once. ``dependent``: the launch may start before the one ahead of it has
        ended, so the kernel waits itself before it touches memory.
        """
        threads = tuple(as_int(extent) for extent in as_tuple(block))
        known = [n for n in threads if n is not None and n > 0]
        product = 1
        for extent in known:
            product *= extent
        if not 1 <= len(threads) <= 3 or len(known) != len(threads) or product > _MOST_THREADS:
            raise ProgramValueError(
                f"the block of {self.name}",
                expected=f"1 to 3 numbers that are known here, at most {_MOST_THREADS} in all",
                found=", ".join(map(describe, as_tuple(block))),
            )
        size = as_int(shared)
        if size is None or size < 0:
            raise ProgramValueError(
                f"the dynamic shared memory of {self.name}",
                expected="a number of bytes that is known here",
                found=describe(shared),
            )
        options = {
            "block": "x".join(map(str, known)),
            "shared": str(size),
            "cluster": str(int(cluster)),
            "cooperative": str(bool(cooperative)),
            "dependent": str(bool(dependent)),
        }
        return Launch(self, grid, tuple(sorted(options.items())))


@dataclass(frozen=True)
class Launch:
    """A launch without its arguments."""

    kernel: ForeignKernel
    grid: object
    options: tuple[tuple[str, str], ...]

    def __call__(self, *args: object) -> None:
        """Record the launch; ``args`` are tensors, numbers and None, in the kernel's order."""
        name, source = self.kernel.name, self.kernel.source
        recorder = open_recorder(f"the kernel {name}")
        recorder.add(
            ExternLaunch(
                source.language,
                name,
                kept_parts(source, name),
                recorder.grid(name, self.grid),
                tuple(_argument(recorder, name, n, value) for n, value in enumerate(args)),
                self.options,
            )
        )


def _argument(recorder: Recorder, kernel: str, number: int, value: object) -> ExternArg:
    what, name = f"argument {number} of {kernel}", str(number)
    if value is None:
        return ExternArg(name, "constant", "None")
    if isinstance(value, BufferRef):
        return recorder.tensor(name, value, what)
    if isinstance(value, Describing):
        return value.argument(recorder, name, what)
    if not is_scalar(value):
        raise ProgramTypeError(f"{what} must be a tensor, a number or None", found=describe(value))
    expr = to_expr(value, what)
    if expr.dtype.is_float:
        return ExternArg(name, "float", _float(expr, what), type=_type_of(expr))
    if expr.dtype.is_bool:
        return ExternArg(name, "bool", expr)
    return ExternArg(name, "int", recorder.integer(value, what))


def _float(expr: Expr, what: str) -> Expr:
    if isinstance(expr, Const):
        return fold.const(float(expr.value), DType("float64"))
    if not isinstance(expr, Var):
        raise ProgramTypeError(
            f"{what} is a float and must be a scalar parameter of the program or a number",
            found=f"an expression of type {expr.dtype}",
        )
    return expr


def _type_of(expr: Expr) -> str:
    """The declared type of a narrow float; others are as wide as the kernel's parameter."""
    return {"float16": "f16", "bfloat16": "bf16"}.get(expr.dtype, "")


# -- what users call -------------------------------------------------------------------------------
def cuda(
    source: str | None = None,
    *,
    path: str | Path | None = None,
    include: Iterable[str | Path] = (),
    headers: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> ForeignSource:
    """CUDA C++ as a source of kernels, compiled by NVRTC when a call needs one.

    ``path`` is relative to the file of the caller and gives the text in place of ``source``.
    ``include`` are folders of headers, which count by content, ``headers`` texts by name,
    ``options`` NVRTC's, such as ``--use_fast_math``. ``cuda(...)["scale<float, 4>"]`` is a kernel.
    """
    caller = Path(inspect.stack()[1].filename).parent
    if (source is None) == (path is None):
        raise ArgumentTypeError("tileops.cuda takes a source text or path=, one of them")
    name = "kernel.cu"
    if path is not None:
        file = caller / path
        name = file.name
        try:
            source = file.read_text()
        except OSError as error:
            raise ArgumentError(f"tileops.cuda: {file} cannot be read: {error.strerror}") from error
    assert source is not None
    folders = [caller / folder for folder in include]
    made: CudaSource = cuda_source(source, name, folders, headers or {}, tuple(options))
    return ForeignSource(made)


def ptx(text: str) -> ForeignSource:
    """PTX as a source of kernels, assembled when a call needs one; ``ptx(text)["axpy"]``."""
    if not isinstance(text, str) or ".entry" not in text:
        raise ArgumentTypeError("tileops.ptx takes the text of PTX, which has an .entry")
    return ForeignSource(PtxSource(text))


def cubin(images: Mapping[str, bytes]) -> ForeignSource:
    """Compiled code as a source of kernels: bytes by architecture, ``{"sm_90a": data}``."""
    if not isinstance(images, Mapping) or not images:
        raise ArgumentTypeError('tileops.cubin takes images by architecture: {"sm_90a": bytes}')
    for arch, data in images.items():
        if not arch.startswith("sm_") or not isinstance(data, bytes) or data[:4] != b"\x7fELF":
            raise ArgumentTypeError(f"tileops.cubin: {arch!r} is not an architecture with a cubin")
    return ForeignSource(CubinSource(dict(images)))
