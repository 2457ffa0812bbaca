"""From generated text to an artifact: the only package that imports Triton or runs a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tileops.codegen.kernel_code import KernelCode
from tileops.compiler.artifact import Artifact, LaunchImage, OneError, PlaceError, StageError
from tileops.compiler.toolchain import Toolchain, content_hash, toolchain_of
from tileops.errors import InternalError
from tileops.target import Target

__all__ = [
    "Artifact",
    "LaunchImage",
    "OneError",
    "PlaceError",
    "StageError",
    "Toolchain",
    "compile_kernel",
    "content_hash",
    "toolchain_of",
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
        from tileops.compiler.gxx import compile_cpp

        return compile_cpp(code, target, options, folder)
    raise InternalError(f"no compiler for language {code.language!r}")
