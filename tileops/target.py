"""Targets: what code is generated for, and what each target's hardware offers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tileops.dtypes import DType
from tileops.errors import ArgumentError

CPU_LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")

# Shared memory that one block can use, bytes; CUDA C++ programming guide, table of compute
# capabilities (opt-in maximum per block), and the CDNA3 instruction set's 64 KiB of LDS.
_SHARED_LIMIT = {
    80: 166912,
    86: 101376,
    87: 166912,
    89: 101376,
    90: 232448,
    100: 232448,
    103: 232448,
    120: 101376,
    121: 101376,
}


# The first compute capability with instructions for a dtype, by construct (PTX ISA, the target
# notes of mma and cvt); what is not listed exists from sm_80 on.
_LEAST_CAPABILITY = {
    ("gemm", "float8_e4m3fn"): 89,
    ("gemm", "float8_e5m2"): 89,
    ("convert", "float8_e4m3fn"): 89,
    ("convert", "float8_e5m2"): 89,
}


@dataclass(frozen=True)
class Target:
    """What code is generated for.

    ``kind`` is cuda, hip, cpu or interpreter, ``arch`` such as ``sm_90a``.
    """

    kind: str
    arch: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}"

    @property
    def is_gpu(self) -> bool:
        return self.kind in ("cuda", "hip")

    @property
    def text_target(self) -> Target:
        """The target of the generated text: the interpreter runs a CUDA target's."""
        return Target("cuda", self.arch) if self.kind == "interpreter" else self

    @property
    def capability(self) -> int:
        """CUDA compute capability as an integer, 90 for sm_90 and sm_90a.

        ArgumentError for other kinds.
        """
        if self.kind != "cuda":
            raise ArgumentError(f"target {self} has no compute capability")
        return int(re.sub(r"[^0-9]", "", self.arch))

    @property
    def warp_size(self) -> int:
        return 64 if self.kind == "hip" and self.arch.startswith("gfx9") else 32

    def supports(self, construct: str, dtype: DType) -> bool:
        """True if the hardware has the construct for elements of ``dtype``.

        Constructs are ``gemm`` and ``convert``. What is not supported is done exactly in integers
        or in a wider dtype, or refused.
        """
        if self.kind == "cuda":
            return self.capability >= _LEAST_CAPABILITY.get((construct, str(dtype)), 0)
        return construct == "convert" or not dtype.is_fp8

    @property
    def shared_limit(self) -> int:
        """Shared memory that one block may use, in bytes."""
        if self.kind == "hip":
            return 65536
        return _SHARED_LIMIT.get(self.capability, 101376)


def parse_target(text: str) -> Target:
    """Parse ``cuda:sm_90``, ``hip:gfx942``, ``cpu``, ``cpu:x86-64-v3``, ``interpreter``.

    ArgumentError for anything else. ``interpreter:sm_80`` names the GPU whose text is interpreted,
    by default ``sm_90``.

    A bare ``cuda`` or ``auto`` names no architecture; the caller resolves it against a device.
    """
    kind, _, arch = text.strip().partition(":")
    kind = {"c": "cpu", "llvm": "cpu"}.get(kind, kind)
    arch = arch.removeprefix("arch=")
    if kind == "interpreter":
        return Target("interpreter", parse_target(f"cuda:{arch or 'sm_90'}").arch)
    if kind == "cuda" and re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        capability = int(re.sub(r"[^0-9]", "", arch))
        if capability < 80:
            raise ArgumentError(
                f"target {text!r}: tileops generates code for sm_80 and newer, got {arch}"
            )
        # Triton compiles for the architecture-specific features from Hopper on: wgmma and tcgen05
        # need them.
        return Target("cuda", arch.rstrip("af") + ("a" if capability >= 90 else ""))
    if kind == "hip" and re.fullmatch(r"gfx[0-9a-f]{3,4}", arch):
        return Target("hip", arch)
    if kind == "cpu" and (not arch or arch in CPU_LEVELS):
        return Target("cpu", arch or host_cpu_level())
    raise ArgumentError(
        f"target {text!r} is not known; expected cuda:sm_NN (80 or newer), hip:gfxNNN, cpu, "
        f"interpreter, or cpu:LEVEL with LEVEL one of {', '.join(CPU_LEVELS)}"
    )


def host_cpu_level() -> str:
    """The level of the processor this runs on, read from the operating system's CPU flags."""
    import platform
    from pathlib import Path

    if platform.machine() in ("aarch64", "arm64"):
        return "aarch64"
    flags: set[str] = set()
    try:
        # The kernel writes one block a processor, some milliseconds for all of them.
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("flags"):
                    flags = set(line.partition(":")[2].split())
                    break
    except OSError:
        return "x86-64-v2"
    # The psABI's micro-architecture levels (x86-64 psABI, section 3.1.1).
    if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma"} <= flags:
        return "x86-64-v4"
    if {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"} <= flags:
        return "x86-64-v3"
    return "x86-64-v2"
