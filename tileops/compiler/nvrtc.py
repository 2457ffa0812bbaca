"""NVRTC by ctypes: CUDA C++ text to a cubin, nothing read from the machine but the library."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tileops.compiler.artifact import StageError
from tileops.compiler.toolchain import Toolchain
from tileops.errors import ToolchainError

_SUCCESS = 0


@dataclass(frozen=True)
class Compiled:
    """A cubin, the symbol of each name expression, and what NVRTC said."""

    cubin: bytes
    names: Mapping[str, str]
    log: str


def compile_cuda(
    library: Path,
    text: str,
    name: str,
    expressions: Sequence[str],
    headers: Mapping[str, str],
    options: Sequence[str],
) -> Compiled:
    """Compile ``text``; StageError with NVRTC's log, which has ``name`` and lines.

    ``headers`` are the texts of all files that it may include, ``options`` NVRTC's, the
    architecture among them. ToolchainError where the library cannot be used.
    """
    return _Program(_loaded(library), text, name, headers).compiled(expressions, options)


def toolchain(library: Path, hash_of: Callable[[Path], str]) -> Toolchain:
    """The library and the built-in functions that it loads, by version and content."""
    nvrtc = _loaded(library)
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    files = [library, *_builtins(library)]
    content = hashlib.sha256(" ".join(hash_of(path) for path in files).encode()).hexdigest()[:32]
    versions = {"nvrtc": f"{major.value}.{minor.value} {content}"}
    return Toolchain(versions, (library.parent, *files), True)


def _builtins(library: Path) -> list[Path]:
    found = library.parent.glob("libnvrtc-builtins.so.*")
    return [path for path in sorted(found) if ".alt." not in path.name]


@cache
def _loaded(library: Path) -> ctypes.CDLL:
    try:
        # The library looks for these by name, where no path of a wheel is searched.
        for path in _builtins(library):
            ctypes.CDLL(str(path))
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ToolchainError(f"NVRTC cannot be loaded from {library}: {error}") from error


class _Program:
    """One program of NVRTC, destroyed with this object."""

    def __init__(
        self, nvrtc: ctypes.CDLL, text: str, name: str, headers: Mapping[str, str]
    ) -> None:
        self._nvrtc = nvrtc
        self._handle = ctypes.c_void_p()
        self._check(
            nvrtc.nvrtcCreateProgram(
                ctypes.byref(self._handle), text.encode(), name.encode(), len(headers),
                _strings(headers.values()), _strings(headers),
            ),
            "nvrtcCreateProgram",
        )  # fmt: skip

    def __del__(self) -> None:
        if self._handle:
            self._nvrtc.nvrtcDestroyProgram(ctypes.byref(self._handle))

    def compiled(self, expressions: Sequence[str], options: Sequence[str]) -> Compiled:
        """The cubin for ``options``."""
        nvrtc, handle = self._nvrtc, self._handle
        for expression in expressions:
            self._check(
                nvrtc.nvrtcAddNameExpression(handle, expression.encode()), "nvrtcAddNameExpression"
            )
        result = nvrtc.nvrtcCompileProgram(handle, len(options), _strings(options))
        log = self._bytes("Log", "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if result != _SUCCESS:
            is_lacking = "open source file" in log
            raise StageError(
                f"NVRTC could not compile {', '.join(expressions)}:\n{log}",
                expected="the header's folder in include=, or its text in headers={name: text}"
                if is_lacking
                else None,
            )
        names = {}
        for expression in expressions:
            lowered = ctypes.c_char_p()
            self._check(
                nvrtc.nvrtcGetLoweredName(handle, expression.encode(), ctypes.byref(lowered)),
                f"nvrtcGetLoweredName of {expression}",
            )
            names[expression] = (lowered.value or b"").decode()
        return Compiled(self._bytes("CUBIN", "CUBIN"), names, log)

    def _bytes(self, size_of: str, what: str) -> bytes:
        prefix = "nvrtcGetProgram" if what == "ProgramLog" else "nvrtcGet"
        size = ctypes.c_size_t()
        self._check(
            getattr(self._nvrtc, f"{prefix}{size_of}Size")(self._handle, ctypes.byref(size)), what
        )
        found = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._nvrtc, f"{prefix}{size_of}")(self._handle, found), what)
        return found.raw

    def _check(self, result: int, what: str) -> None:
        if result != _SUCCESS:
            self._nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            words = self._nvrtc.nvrtcGetErrorString(result).decode()
            raise ToolchainError(f"{what}: {words}")


def _strings(texts: object) -> ctypes.Array[ctypes.c_char_p]:
    found = [text.encode() for text in texts]  # type: ignore[attr-defined]
    return (ctypes.c_char_p * len(found))(*found)
