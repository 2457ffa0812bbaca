"""Builds the core with its C++ tests under ASan and UBSan, and runs them.

python -m tests.native.build unit
python -m tests.native.build reread
python -m tests.native.build fuzz [--seconds 600] [--seed 7]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUT = ROOT / "build" / "native"
GXX = shutil.which("g++") or "g++"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
FLAGS = [
    "-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-pthread", *SANITIZE,
    f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'cpu'}", f'-DTILEOPS_CORPUS="{HERE / "corpus"}"',
]  # fmt: skip
PROGRAMS = {
    "unit": ("unit_text.cpp", "unit_spec.cpp", "unit_forks.cpp"),
    "fuzz": ("fuzz.cpp",),
    "reread": ("reread.cpp",),
}


def cuda_include() -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "include"


def build(name: str) -> Path:
    """The executable of the tests ``name``; objects newer than all sources and headers are kept."""
    OUT.mkdir(parents=True, exist_ok=True)
    sources = [*sorted((ROOT / "csrc" / "core").glob("*.cpp")), *(HERE / s for s in PROGRAMS[name])]
    headers = [p for folder in (ROOT / "csrc", HERE) for p in folder.rglob("*.h")]
    newest = max(p.stat().st_mtime for p in (*headers, Path(__file__)))
    with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS", "2"))) as pool:
        objects = list(pool.map(lambda source: _object(source, newest), sources))
    program = OUT / name
    subprocess.run(
        [GXX, *SANITIZE, *map(str, objects), "-o", str(program), "-ldl", "-pthread"], check=True
    )
    return program


def _object(source: Path, newest_header: float) -> Path:
    out = OUT / f"{source.stem}.o"
    if not out.exists() or out.stat().st_mtime < max(newest_header, source.stat().st_mtime):
        command = [GXX, *FLAGS, "-isystem", str(cuda_include()), "-c", str(source), "-o", str(out)]
        subprocess.run(command, check=True)
    return out


def run(name: str, *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a built executable in its folder, where a fuzzer leaves what brought it down.

    ``text`` is what it reads.
    """
    options = "halt_on_error=1:detect_stack_use_after_return=1"
    return subprocess.run(
        [str(OUT / name), *map(str, arguments)], cwd=OUT, text=True, capture_output=True, input=text,
        env=os.environ | {"ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"},
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    build(options.name)
    arguments = (options.seconds, options.seed) if options.name == "fuzz" else ()
    done = run(options.name, *arguments)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
