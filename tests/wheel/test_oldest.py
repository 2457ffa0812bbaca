"""The binaries load on every glibc from 2.28: which versions their symbols have, and what stands in for newer ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import tileops
from distribution import native, oldest

GXX = shutil.which("g++") or "g++"
HERE = Path(__file__).parent
PACKAGE = Path(tileops.__file__).parent


@pytest.mark.parametrize("binary", sorted(PACKAGE.glob("*.so")), ids=lambda path: path.name)
def test_a_binary_needs_no_newer_library(binary: Path) -> None:
    assert oldest.too_new(binary) == []


def compiled(out: Path, source: str, *flags: str) -> Path:
    command = [
        GXX,
        "-std=c++17",
        "-O2",
        "-fPIC",
        f"-I{native.ROOT / 'csrc'}",
        *flags,
        "-x",
        "c++",
        "-",
    ]
    subprocess.run([*command, "-shared", "-o", str(out)], input=source, text=True, check=True)
    return out


def test_newer_symbols_are_named(tmp_path: Path) -> None:
    source = "#include <dlfcn.h>\nvoid* f(const char* name) { return dlopen(name, RTLD_NOW); }\n"
    plain = compiled(tmp_path / "plain.so", source)
    if not oldest.too_new(plain):
        pytest.skip("this system's glibc is older than 2.34, which moved dlopen")
    assert oldest.too_new(plain) == ["dlopen@GLIBC_2.34"]
    with pytest.raises(
        SystemExit, match=r"plain\.so does not load on manylinux_2_28: .*dlopen@GLIBC_2\.34"
    ):
        oldest.require(tmp_path)
    header = str(native.ROOT / "csrc" / "oldest" / "libc.h")
    assert oldest.too_new(compiled(tmp_path / "old.so", source, "-include", header)) == []


@pytest.mark.parametrize("link", ["-shared-libgcc", "-static-libstdc++"])
def test_what_stands_in_for_newer_libraries_works(tmp_path: Path, link: str) -> None:
    """Beside a shared libstdc++, and with one linked in, as compilers do that have no other."""
    program, data = tmp_path / "shims", tmp_path / "data"
    data.write_bytes(b"x" * 1234)
    own = [str(native.ROOT / name) for name in native.sources("oldest")]
    flags = [flag for flag in native.FLAGS if flag != "-Werror"]
    subprocess.run(
        [GXX, *flags, f"-I{native.ROOT / 'csrc'}", str(HERE / "shims.cpp"), *own, link,
         "-o", str(program)],
        check=True,
    )  # fmt: skip
    names = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    for name in ("stat", "fstat", "_ZSt28__throw_bad_array_new_lengthv"):
        assert re.search(rf" [tTwW] {name}$", names, re.MULTILINE), name
    done = subprocess.run([program, data], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [
        "exceptions 1", "length 1", "size 1234 1234", "missing -1", "symbol 1",
    ]  # fmt: skip
