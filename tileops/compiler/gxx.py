"""Owns the C++ compiler of the CPU path: which one, its identity, and text to shared library."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from tileops import settings
from tileops.codegen.kernel_code import KernelCode
from tileops.compiler.artifact import Artifact, LaunchImage, StageError
from tileops.errors import ToolchainError
from tileops.pass_configs import DEBUG_CPU
from tileops.target import Target, host_cpu_level

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
_INSTALL = (
    "compiling for the CPU needs g++ 11 or newer (Debian, Ubuntu: apt install g++; "
    "Fedora: dnf install gcc-c++; conda: conda install -c conda-forge gxx), or TILEOPS_CXX naming "
    "another compiler"
)


def include_folder() -> Path:
    """Where the headers that kernels include lie: in the package if installed, else in csrc/cpu."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "include"
    return installed if installed.is_dir() else package.parent / "csrc" / "cpu"


def command(target: Target) -> list[str]:
    """The compiler for ``target`` as an argument list.

    ToolchainError saying what to install if it is missing.
    """
    named = settings.current().cxx
    words = shlex.split(named) if named else [_default_name(target)]
    found = shutil.which(words[0])
    if found is None:
        if named:
            raise ToolchainError(f"the compiler that TILEOPS_CXX names was not found: {named}")
        if words[0] != "g++":
            raise ToolchainError(
                f"compiling for {target} on this machine needs the cross compiler {words[0]}, or "
                "TILEOPS_CXX naming one"
            )
        raise ToolchainError(f"g++ was not found; {_INSTALL}")
    return [found, *words[1:]]


def _default_name(target: Target) -> str:
    host = "aarch64" if host_cpu_level() == "aarch64" else "x86_64"
    wanted = "aarch64" if target.arch == "aarch64" else "x86_64"
    return "g++" if host == wanted else f"{wanted}-linux-gnu-g++"


def toolchain_versions(target: Target) -> dict[str, str]:
    """The compiler's version and the hash of its driver's content.

    ToolchainError where it is missing.
    """
    words = command(target)
    path = Path(words[0]).resolve()
    stat = path.stat()
    identity = _identity(tuple(words), str(path), stat.st_size, stat.st_mtime_ns)
    return {"g++": identity}


@lru_cache(maxsize=8)
def _identity(words: tuple[str, ...], path: str, size: int, changed_ns: int) -> str:
    del size, changed_ns  # part of the cache key of this function only
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:32]
    try:
        asked = subprocess.run(
            [*words, "-dumpfullversion", "-dumpversion"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{words[0]} could not be asked for its version: {error}") from error
    if asked.returncode != 0:
        raise ToolchainError(f"{words[0]} does not tell its version: {asked.stderr.strip()}")
    return f"{asked.stdout.split()[0]} {digest}"


def flags(target: Target, options: Mapping[str, str]) -> list[str]:
    """All flags that shape the code, in order.

    ``options["compile_flags"]`` holds the user's own.
    """
    speed = _DEBUG if options.get(DEBUG_CPU, "") in ("1", "True", "true") else _FAST
    own = shlex.split(options.get("compile_flags", ""))
    return [*_LANGUAGE, *_MEANING, *_OUTPUT, *speed, *_MARCH[target.arch], *own]


def compile_cpp(code: KernelCode, target: Target, options: Mapping[str, str]) -> Artifact:
    """Compile generated C++ to one shared library; the same bytes from any working directory.

    ToolchainError without a compiler, StageError with the compiler's words if it refuses the text.
    """
    words = command(target)
    chosen = flags(target, options)
    include = include_folder()
    with tempfile.TemporaryDirectory(prefix="tileops-cpp-") as folder:
        work = Path(folder)
        (work / SOURCE).write_text(code.source, encoding="utf-8")
        place = [
            f"-ffile-prefix-map={work}=.",
            f"-ffile-prefix-map={include}=include",
            "-I",
            str(include),
        ]
        _run([*words, *chosen, *place, SOURCE, "-o", LIBRARY, "-lm"], work, code)
        library = (work / LIBRARY).read_bytes()
    files = {
        SOURCE: code.source.encode(),
        SCRIPT: _script(chosen).encode(),
        LIBRARY: library,
    }
    launches = tuple(
        LaunchImage(image=LIBRARY, entry=launch.entry, threads=1, shared_bytes=0)
        for launch in code.launches
    )
    return Artifact(files, launches, toolchain_versions(target))


def _run(argv: list[str], work: Path, code: KernelCode) -> None:
    # Variables that would add include paths, flags or languages are the user's, not the key's.
    environment = settings.child_environment(
        {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "TMPDIR": str(work)},
        drop=(
            "CPATH",
            "C_INCLUDE_PATH",
            "CPLUS_INCLUDE_PATH",
            "GCC_",
            "COMPILER_PATH",
            "DEPENDENCIES_OUTPUT",
        ),
    )
    try:
        done = subprocess.run(
            argv,
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ToolchainError(
            f"{argv[0]} took longer than {TIMEOUT_S} s on a generated kernel"
        ) from None
    except OSError as error:
        raise ToolchainError(f"{argv[0]} could not be run: {error}; {_INSTALL}") from None
    if done.returncode == 0:
        return
    name, words = Path(argv[0]).name, done.stderr.strip()
    if not any(line.startswith(f"{SOURCE}:") and "error:" in line for line in words.splitlines()):
        # Such as "No space left on device", or "Killed" where memory ran out.
        raise ToolchainError(
            f"{name} failed, which worked in {work} (TMPDIR names another place):\n{words}"
        )
    raise StageError(f"{name} refused generated code:\n{words}", _statement(words, code))


def _statement(text: str, code: KernelCode) -> int | None:
    """The statement that the first complaint about the text points at."""
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[0] == SOURCE and parts[1].isdigit():
            return code.statements.get(int(parts[1]))
    return None


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
