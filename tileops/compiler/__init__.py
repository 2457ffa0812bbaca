"""Owns the way from generated text to an artifact.

The only package that imports Triton or runs a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tileops.codegen.kernel_code import KernelCode
from tileops.compiler.artifact import Artifact, LaunchImage, PlaceError, StageError
from tileops.compiler.cxx_identity import content_hash
from tileops.compiler.toolchain import Toolchain, toolchain_of, toolchain_versions
from tileops.errors import InternalError
from tileops.target import Target

__all__ = [
    "Artifact",
    "LaunchImage",
    "PlaceError",
    "StageError",
    "Toolchain",
    "compile_kernel",
    "content_hash",
    "toolchain_of",
    "toolchain_versions",
]


def compile_kernel(
    code: KernelCode, target: Target, options: Mapping[str, str], folder: Path | None = None
) -> Artifact:
    """Compile generated code for ``target``; ``options`` are the program's pass configs and flags.

    ``folder``, which is empty, is for the compiler's files; by default one for temporary files.
    ToolchainError where a compiler is missing or refuses the text, SharedMemoryError where the
    target has too little shared memory. Depends on its arguments and the toolchain only.
    """
    if code.language == "triton":
        from tileops.compiler.triton_stages import compile_triton

        return compile_triton(code, target, options, folder)
    if code.language == "cpp":
        from tileops.compiler import gxx

        artifact: Artifact = gxx.compile_cpp(code, target, options, folder)
        return artifact
    raise InternalError(f"no compiler for language {code.language!r}")
