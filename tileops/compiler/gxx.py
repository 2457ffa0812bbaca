"""The C++ compiler of the CPU path: its flags, and the way from text to a shared library."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tileops import cxx, forks, settings
from tileops.codegen.kernel_code import KernelCode
from tileops.compiler.artifact import Artifact, LaunchImage, PlaceError, StageError
from tileops.cxx import include_folder as include_folder
from tileops.errors import ToolchainError
from tileops.pass_configs import DEBUG_CPU
from tileops.target import Target

SOURCE, LIBRARY, SCRIPT = "device_kernel.cpp", "kernel_lib.so", "compile.sh"
TIMEOUT_S = 600

# A level of the x86-64 psABI, never the machine at hand: entries move between machines.
_MARCH = {
    "x86-64-v2": ("-march=x86-64-v2",),
    "x86-64-v3": ("-march=x86-64-v3",),
    # GCC prefers 256-bit vectors at this level unless told otherwise; the gemm kernels are written
    # for 512.
    "x86-64-v4": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "aarch64": ("-march=armv8-a",),
}

_LANGUAGE = (
    "-std=c++17",
    "-nostdinc",  # kernels include tileops' headers only
    "-nostdinc++",
    "-fno-exceptions",
    "-fno-rtti",
    "-Wall",
    "-Wno-unused-but-set-variable",
)
_MEANING = (
    "-fwrapv",  # integer overflow wraps
    "-ffp-contract=off",  # products and sums round one by one; the gemm kernels fuse explicitly
    "-fno-math-errno",  # nobody reads errno; sqrt is then one instruction
    "-fno-trapping-math",  # no floating-point traps, so conditions become selects in vector code
    "-fno-strict-aliasing",  # views reinterpret tiles
)
_OUTPUT = (
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-plt",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-ident",  # the compiler's identity is in the key
    "-frandom-seed=0",
    "-Wl,--build-id=none",
    "-Wl,--as-needed",
    "-Wl,-z,noexecstack",
)
_FAST, _DEBUG = ("-O3", "-g0"), ("-O0", "-g", "-DTILEOPS_DEBUG=1")


def flags(target: Target, options: Mapping[str, str]) -> list[str]:
    """All flags that shape the code, in order; ``options["compile_flags"]`` are the user's own."""
    speed = _DEBUG if options.get(DEBUG_CPU, "") in ("1", "True", "true") else _FAST
    own = shlex.split(options.get("compile_flags", ""))
    return [*_LANGUAGE, *_MEANING, *_OUTPUT, *speed, *_MARCH[target.arch], *own]


def compile_cpp(
    code: KernelCode, target: Target, options: Mapping[str, str], folder: Path | None = None
) -> Artifact:
    """Compile generated C++ to one shared library; the same bytes from any working directory.

    ``folder``, which is empty, is for the compiler's files; by default one for temporary files.
    ToolchainError without a compiler, PlaceError where it could not work in the folder, StageError
    with the compiler's words if it refuses the text.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tileops-cpp-") as temporary:
            return compile_cpp(code, target, options, Path(temporary))
    words = cxx.command(target)
    chosen = flags(target, options)
    include = include_folder()
    (folder / SOURCE).write_text(code.source, encoding="utf-8")
    place = [
        f"-ffile-prefix-map={settings.WORKING_DIRECTORY}=.",
        f"-ffile-prefix-map={include}=include",
        "-I",
        str(include),
    ]
    _run([*words, *chosen, *place, SOURCE, "-o", LIBRARY, "-lm"], folder, code)
    try:
        library = (folder / LIBRARY).read_bytes()
    except FileNotFoundError:
        raise ToolchainError(
            f"{words[0]} ended without an error and wrote nothing{cxx.origin()}: expected a C++ "
            "compiler, such as g++"
        ) from None
    files = {SOURCE: code.source.encode(), SCRIPT: _script(chosen).encode(), LIBRARY: library}
    launches = tuple(
        LaunchImage(image=LIBRARY, entry=launch.entry, threads=1, shared_bytes=0)
        for launch in code.launches
    )
    return Artifact(files, launches)


def _run(argv: list[str], folder: Path, code: KernelCode) -> None:
    try:
        done = forks.run_process(
            argv,
            cwd=folder,
            env=settings.compiler_environment(str(folder)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ToolchainError(
            f"{argv[0]} took longer than {TIMEOUT_S} s on a generated kernel{cxx.origin()}"
        ) from None
    except OSError as error:
        raise PlaceError(
            f"{argv[0]} could not be run{cxx.origin()}: {error}; {cxx.INSTALL}"
        ) from None
    if done.returncode == 0:
        return
    name, words = Path(argv[0]).name, done.stderr.strip()
    if "error while loading shared libraries" in words:
        raise ToolchainError(
            f"{name} could not load its own libraries; compilers run without LD_LIBRARY_PATH, so "
            f"name it in the command: TILEOPS_CXX='env LD_LIBRARY_PATH=... {argv[0]}'\n{words}"
        )
    if not any(line.startswith(f"{SOURCE}:") and "error:" in line for line in words.splitlines()):
        # Such as "No space left on device", or "Killed" where memory ran out.
        raise PlaceError(
            f"{name} failed, which worked in {folder} (TMPDIR names another place):\n{words}"
        )
    place = re.search(rf"^{re.escape(SOURCE)}:(\d+):", words, re.MULTILINE)
    statement = code.statements.get(int(place[1])) if place else None
    raise StageError(f"{name} refused generated code:\n{words}", statement)


def _script(chosen: list[str]) -> str:
    return (
        "#!/bin/sh\n"
        "# Compiles device_kernel.cpp of this folder again. TILEOPS_INCLUDE is the folder of "
        "tileops' headers:\n"
        "# TILEOPS_INCLUDE=$(python -c "
        '"from tileops.compiler import gxx; print(gxx.include_folder())")\n'
        'cd "$(dirname "$0")" || exit 1\n'
        f'"${{CXX:-g++}}" {shlex.join(chosen)} -I "${{TILEOPS_INCLUDE:?}}" '
        f"{SOURCE} -o {LIBRARY} -lm\n"
    )
