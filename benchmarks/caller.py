"""The C++ caller: a library, built at its first use, that calls ops without Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sysconfig
from pathlib import Path

import torch

TENSORS_AND_COUNT = [
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]


def build(folder: Path) -> Path:
    """Compile ``caller.cpp`` into ``folder``; CalledProcessError where the compiler refuses it."""
    out = folder / "libcaller.so"
    libraries = Path(torch.__file__).parent / "lib"
    subprocess.run(
        [shutil.which("g++") or "g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
         "-fvisibility=hidden", str(Path(__file__).with_name("caller.cpp")), "-o", str(out),
         "-isystem", sysconfig.get_paths()["include"], "-isystem", str(libraries.parent / "include"),
         f"-L{libraries}", "-ltorch_cpu", "-lc10", "-pthread"],
        check=True,
    )  # fmt: skip
    return out


class Caller:
    """The library's functions.

    ``device`` is ``cpu`` or ``cuda``; ops are named ``ns::name`` and take ``tensors`` vectors,
    ``scalars`` floats, and ``nones`` compile-time arguments that are left to their defaults.
    """

    def __init__(self, path: Path) -> None:
        self.free = ctypes.CDLL(str(path))  # without the interpreter's lock
        self.held = ctypes.PyDLL(str(path))
        self.free.caller_ns.restype = ctypes.c_double
        self.free.caller_ns.argtypes = [
            ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_int,
            ctypes.c_int64,
        ]  # fmt: skip
        self.held.caller_python_allocations.restype = ctypes.c_int64
        self.held.caller_python_allocations.argtypes = TENSORS_AND_COUNT
        self.held.caller_control_allocations.restype = ctypes.c_int64
        self.held.caller_control_allocations.argtypes = [ctypes.c_int64]
        self.held.caller_needs_no_gil.argtypes = TENSORS_AND_COUNT

    def _device(self, device: str) -> int:
        return self.free.caller_cuda() if device == "cuda" else self.free.caller_cpu()

    def ns(
        self, op: str, device: str, *, tensors: int = 2, scalars: int = 0, nones: int = 0, count: int = 2000,
        size: int = 256, overload: str = "",
    ) -> float:  # fmt: skip
        """Nanoseconds of one call, the mean of ``count``."""
        return self.free.caller_ns(
            op.encode(),
            overload.encode(),
            self._device(device),
            size,
            tensors,
            scalars,
            nones,
            count,
        )

    def python_allocations(
        self, op: str, device: str, *, tensors: int = 2, nones: int = 0, count: int
    ) -> int:
        """What ``count`` calls ask of Python's allocators."""
        return self.held.caller_python_allocations(
            op.encode(), self._device(device), 256, tensors, nones, count
        )

    def needs_no_gil(
        self, op: str, device: str, *, tensors: int = 2, nones: int = 0, count: int
    ) -> bool:
        """Whether calls on a C++ thread end while this thread keeps the interpreter's lock."""
        return bool(
            self.held.caller_needs_no_gil(
                op.encode(), self._device(device), 256, tensors, nones, count
            )
        )
