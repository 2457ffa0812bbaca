"""Owns the way from generated text to an artifact.

The only package that imports Triton or runs a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileops.codegen.kernel_code import KernelCode
from tileops.compiler.artifact import Artifact, LaunchImage, StageError
from tileops.compiler.toolchain import toolchain_files, toolchain_versions
from tileops.errors import InternalError
from tileops.target import Target

__all__ = [
    "Artifact",
    "LaunchImage",
    "StageError",
    "compile_kernel",
    "toolchain_files",
    "toolchain_versions",
]


def compile_kernel(code: KernelCode, target: Target, options: Mapping[str, str]) -> Artifact:
    """Compile generated code for ``target``; ``options`` are the program's pass configs and flags.

    ToolchainError where a compiler is missing or refuses the text, SharedMemoryError where the
    target has too little shared memory. Depends on its arguments and the toolchain only.
    """
    if code.language == "triton":
        from tileops.compiler.triton_stages import compile_triton

        return compile_triton(code, target, options)
    if code.language == "cpp":
        from tileops.compiler import gxx

        artifact: Artifact = gxx.compile_cpp(code, target, options)
        return artifact
    raise InternalError(f"no compiler for language {code.language!r}")
