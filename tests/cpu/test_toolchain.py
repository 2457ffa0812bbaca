"""The C++ compiler: its identity follows what a name leads to, and the environment changes nothing."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cpu.test_gxx import TARGET, code_of
from tileops import settings
from tileops.cache import memo
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import content_hash, gxx
from tileops.compiler import toolchain as compilers
from tileops.errors import ToolchainError
from tileops.frontend.trace import trace
from tileops.jit import tool_versions
from tileops.jit.compile_workers import CompilePool
from tileops.jit.compiling import Request
from tileops.pass_configs import DEBUG_CPU


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEOPS_CXX", raising=False)
    memo._found.clear()
    yield
    memo._found.clear()


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def compiler(path: Path, version: str, real: str = "/usr/bin/g++") -> Path:
    return script(path, f'[ "$1" = -dumpfullversion ] && echo {version} || exec {real} "$@"')


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


# -- identity -----------------------------------------------------------------------------------
# Each changes what compiles after the first look, and not what is asked for.
def _a_link_leads_elsewhere(folder, monkeypatch):
    link(folder / "bin" / "g++", compiler(folder / "one", "12.0.1"))
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    yield
    link(folder / "bin" / "g++", compiler(folder / "two", "99.0.1"))


def _a_link_of_a_link_leads_elsewhere(folder, monkeypatch):
    link(folder / "alternatives", compiler(folder / "one", "12.0.1"))
    link(folder / "bin" / "g++", folder / "alternatives")
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    yield
    link(folder / "alternatives", compiler(folder / "two", "99.0.1"))


def _a_folder_comes_first_on_the_path(folder, monkeypatch):
    compiler(folder / "activated" / "g++", "99.0.1")
    yield
    monkeypatch.setenv("PATH", f"{folder}/activated:{os.environ['PATH']}")


def _a_compiler_is_installed_in_an_earlier_folder(folder, monkeypatch):
    (folder / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    yield
    compiler(folder / "bin" / "g++", "99.0.1")


def _what_a_wrapper_runs_is_another(folder, monkeypatch):
    link(folder / "inner", compiler(folder / "one", "12.0.1"))
    script(folder / "wrapper", f'exec {folder}/inner "$@"')
    monkeypatch.setenv("TILEOPS_CXX", str(folder / "wrapper"))
    yield
    link(folder / "inner", compiler(folder / "two", "99.0.1"))


def _what_env_runs_is_another(folder, monkeypatch):
    link(folder / "inner", compiler(folder / "one", "12.0.1"))
    monkeypatch.setenv("TILEOPS_CXX", f"env A=b {folder}/inner")
    yield
    link(folder / "inner", compiler(folder / "two", "99.0.1"))


def _the_linker_is_another(folder, monkeypatch):
    (folder / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    yield
    script(folder / "bin" / "ld", 'exec /usr/bin/ld "$@"')


def _the_assembler_is_another(folder, monkeypatch):
    yield
    script(folder / "bin" / "as", 'exec /usr/bin/as "$@"')
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def _the_compiler_proper_is_another(folder, monkeypatch):
    real = script(folder / "cc1plus", "# one")
    compiler(folder / "bin" / "g++", "12.0.1")
    text = f'[ "$1" = -print-prog-name=cc1plus ] && echo {real} || exec /usr/bin/g++ "$@"'
    script(folder / "bin" / "g++", text)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    yield
    script(folder / "cc1plus", "# two")


def _an_argument_is_another(folder, monkeypatch):
    monkeypatch.setenv("TILEOPS_CXX", "g++ -O1")
    yield
    monkeypatch.setenv("TILEOPS_CXX", "g++ -O2")


CHANGES = [
    _a_link_leads_elsewhere,
    _a_link_of_a_link_leads_elsewhere,
    _a_folder_comes_first_on_the_path,
    _a_compiler_is_installed_in_an_earlier_folder,
    _what_a_wrapper_runs_is_another,
    _what_env_runs_is_another,
    _the_linker_is_another,
    _the_assembler_is_another,
    _the_compiler_proper_is_another,
    _an_argument_is_another,
]


@pytest.mark.parametrize("process", ["the same process", "another process"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__[1:])
def test_identity_is_of_what_compiles_now(change, process, tmp_path, monkeypatch):
    step = change(tmp_path, monkeypatch)
    next(step)
    first = tool_versions.of(TARGET)
    assert tool_versions.of(TARGET) == first
    next(step, None)
    if process == "another process":
        memo._found.clear()
    second = tool_versions.of(TARGET)
    assert second != first
    assert tool_versions.of(TARGET) == second


def test_the_same_content_elsewhere_is_the_same_compiler(tmp_path, monkeypatch):
    found = []
    for name in ("one", "two"):
        monkeypatch.setenv("TILEOPS_CXX", str(compiler(tmp_path / name, "12.0.1")))
        found.append(tool_versions.of(TARGET))
    assert found[0] == found[1]


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_ccache_is_a_wrapper_also_under_the_name_of_a_compiler(tmp_path):
    link(tmp_path / "g++", Path(shutil.which("ccache")))
    for words in ([shutil.which("ccache"), "g++"], [str(tmp_path / "g++")]):
        assert not compilers._cxx_toolchain(words, content_hash).is_settled
    assert compilers._cxx_toolchain([shutil.which("g++")], content_hash).is_settled


def test_a_plain_compiler_is_asked_once(monkeypatch):
    tool_versions.of(TARGET)
    memo._found.clear()
    monkeypatch.setattr("tileops.compiler.toolchain_of", lambda *_: pytest.fail("asked again"))
    tool_versions.of(TARGET)


# -- what is no compiler --------------------------------------------------------------------------
NO_COMPILERS = [
    " ", "''", "'x", '"', "\\", "/bin/true", "/bin/false", "/bin/echo", "/bin/cat", "/", "/tmp",
    "/dev/null", "no-such-compiler -O2", "env", "env no-such-compiler", "sleep 1000", "g\udcff+",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_COMPILERS, ids=ascii)
def test_a_command_that_is_no_compiler_is_named_with_its_variable(text, monkeypatch):
    monkeypatch.setenv("TILEOPS_CXX", text)
    with pytest.raises(ToolchainError, match="TILEOPS_CXX"):
        tool_versions.of(TARGET)


# -- the environment ------------------------------------------------------------------------------
# What the manuals of gcc, binutils, ld.so and ccache name, and what shells of builders set.
VARIABLES = {
    **dict.fromkeys(
        (
            "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH",
            "COMPILER_PATH", "GCC_EXEC_PREFIX", "GCC_ROOT", "LD_RUN_PATH", "LD_LIBRARY_PATH", "PWD",
            "SYSROOT", "CONDA_BUILD_SYSROOT", "HOME",
        ),
        "{hostile}",
    ),
    "DEPENDENCIES_OUTPUT": "{hostile}/dependencies",
    "SUNPRO_DEPENDENCIES": "{hostile}/sunpro target",
    "SOURCE_DATE_EPOCH": "1",
    "GCC_COMPARE_DEBUG": "-gtoggle",
    "GCC_EXTRA_DIAGNOSTIC_OUTPUT": "fixits-v2",
    "GCC_COLORS": "error=01;31",
    "GCC_URLS": "st",
    "TERM_URLS": "st",
    "COLLECT_GCC_OPTIONS": "'-O0'",
    "COLLECT_GCC": "/bin/false",
    "COLLECT_NO_DEMANGLE": "1",
    "LDEMULATION": "elf_i386",
    "LD_PRELOAD": "{hostile}/evil.so",
    "LD_OPTIONS": "-r",
    "GNUTARGET": "elf32-i386",
    "POSIXLY_CORRECT": "1",
    "TMPDIR": "/proc",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "de_DE.UTF-8",
    "LC_CTYPE": "tr_TR",
    "LANGUAGE": "de",
    "CXXFLAGS": "-O0",
    "CFLAGS": "-O0",
    "CPPFLAGS": "-DX",
    "LDFLAGS": "-Wl,-rpath,/evil",
    "CXX": "/bin/false",
    "CC": "/bin/false",
    "MAKEFLAGS": "-j",
    "CCACHE_PREFIX": "/bin/false",
    "DISTCC_HOSTS": "evil",
}  # fmt: skip


def hostile(monkeypatch, folder, names):
    (folder / "hostile").mkdir()
    (folder / "hostile" / "crti.o").write_text("evil")
    (folder / "hostile" / "libm.so").write_text("evil")
    for name in names:
        monkeypatch.setenv(name, VARIABLES[name].format(hostile=folder / "hostile"))


@pytest.mark.parametrize("name", [*VARIABLES, "all"])
def test_the_bytes_are_the_same_under(name, tmp_path, monkeypatch):
    options = {DEBUG_CPU: "1"} if name in ("PWD", "SOURCE_DATE_EPOCH", "HOME", "all") else {}
    with monkeypatch.context() as clean:
        for known in VARIABLES:
            clean.delenv(known, raising=False)
        expected = gxx.compile_cpp(code_of(M=8, N=8, K=8), TARGET, options).files
    names = [n for n in VARIABLES if n != "TMPDIR"] if name == "all" else [name]
    hostile(monkeypatch, tmp_path, names)
    assert gxx.compile_cpp(code_of(M=8, N=8, K=8), TARGET, options).files == expected
    assert sorted(p.name for p in (tmp_path / "hostile").iterdir()) == ["crti.o", "libm.so"]


@pytest.mark.parametrize("folder", ["with blank", "a=b", "ä", "a'b\"c", "$(x)"])
def test_the_bytes_are_the_same_in_any_folder(folder, tmp_path):
    """Also debug information, which names the folder of a compile."""
    expected = gxx.compile_cpp(code_of(M=8, N=8, K=8), TARGET, {DEBUG_CPU: "1"}).files
    work = tmp_path / folder
    work.mkdir()
    found = gxx.compile_cpp(code_of(M=8, N=8, K=8), TARGET, {DEBUG_CPU: "1"}, work).files
    assert found == expected
    assert os.fsencode(work) not in found[gxx.LIBRARY]


def test_the_environment_is_what_the_page_lists(monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "cache.md").read_text()
    for name in settings.compiler_environment("/x"):
        assert f"`{name}`" in page


def test_relative_parts_of_the_path_are_left_out(monkeypatch):
    monkeypatch.setenv("PATH", f"bin::.:/usr/bin{os.pathsep}relative")
    assert settings.compiler_environment("/x")["PATH"] == "/usr/bin"


def copied(X):
    import tileops.language as T

    X: T.Tensor((4,), "float32")
    Y = T.empty((4,), "float32")
    with T.Kernel(1, threads=128) as _:
        T.copy(X, Y)
    return Y


def test_the_tuners_processes_compile_the_same_bytes(tmp_path, monkeypatch):
    program = trace(copied, name="copied", static={}, consts={})
    request = Request(program, TARGET, Specialization(fast=True), "copied", "tuning")
    found = []
    for turn in ("clean", "hostile"):
        if turn == "hostile":
            kept = ("LD_PRELOAD", "HOME", "PWD", "TMPDIR", "LD_LIBRARY_PATH", "LC_CTYPE", "LC_ALL")
            hostile(monkeypatch, tmp_path, [n for n in VARIABLES if n not in kept])
        with CompilePool(str(tmp_path / turn), 120, workers=1) as pool:
            ((_, done),) = pool.compile({0: request})
        assert done.status == "ok", done.reason
        (library,) = (tmp_path / turn / "programs").glob("*/kernel_lib.so")
        found.append((done.hash, library.read_bytes()))
    assert found[0] == found[1]
