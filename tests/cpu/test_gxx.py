"""The C++ compiler: identity, determinism, flags, and what a user is told where it is missing."""

import os
import subprocess
import sys
import tempfile

import pytest

import tileops.language as T
from tests.cpu.test_programs import attention, matmul_relu
from tests.kit.harness import build_eager
from tileops import cxx, settings
from tileops.codegen import cpu
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.compiler import gxx
from tileops.compiler.artifact import StageError
from tileops.errors import ToolchainError
from tileops.frontend.trace import trace
from tileops.jit import tool_versions
from tileops.pass_configs import DEBUG_CPU
from tileops.target import parse_target

TARGET = parse_target("cpu:x86-64-v3")


def code_of(func=matmul_relu, **sizes):
    consts = sizes or {"M": 100, "N": 70, "K": 50}
    program = trace(func, name=func.__name__, static={}, consts=consts)
    return cpu.generate(program, TARGET, Specialization())


@pytest.fixture
def _restored():
    yield
    settings.clear_overrides()


def test_same_bytes_from_any_folder(tmp_path, monkeypatch):
    first = gxx.compile_cpp(code_of(), TARGET, {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/nowhere")
    second = gxx.compile_cpp(code_of(), TARGET, {})
    assert first.files == second.files
    text = b"".join(first.files.values())
    assert str(gxx.include_folder()).encode() not in text
    assert b"tileops-cpp-" not in text


def test_script_compiles_the_same_library(tmp_path):
    artifact = gxx.compile_cpp(code_of(), TARGET, {})
    for name in (gxx.SOURCE, gxx.SCRIPT):
        (tmp_path / name).write_bytes(artifact.files[name])
    chosen = {"TILEOPS_INCLUDE": str(gxx.include_folder()), "CXX": cxx.command(TARGET)[0]}
    environment = {**os.environ, **chosen}
    subprocess.run(["sh", str(tmp_path / gxx.SCRIPT)], check=True, env=environment, cwd="/")
    assert (tmp_path / gxx.LIBRARY).read_bytes() == artifact.files[gxx.LIBRARY]


@pytest.mark.usefixtures("_restored")
def test_without_a_compiler_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TILEOPS_CXX", raising=False)
    for call in (
        lambda: gxx.compile_cpp(code_of(), TARGET, {}),
        lambda: tool_versions.of(TARGET),
    ):
        with pytest.raises(ToolchainError, match=r"g\+\+ was not found; .*apt install g\+\+"):
            call()
    settings.override("cxx", "no-such-compiler -O2")
    with pytest.raises(ToolchainError, match="TILEOPS_CXX names was not found: no-such-compiler"):
        cxx.command(TARGET)


def test_foreign_targets_name_the_cross_compiler(monkeypatch):
    monkeypatch.setattr(cxx, "host_cpu_level", lambda: "x86-64-v3")
    monkeypatch.setattr(settings, "find_program", lambda name: None)
    with pytest.raises(ToolchainError, match=r"cross compiler aarch64-linux-gnu-g\+\+"):
        cxx.command(parse_target("cpu:aarch64"))


def test_refused_text_tells_its_statement():
    code = KernelCode("cpp", "int x;\nthis is no C++;\n", (), {2: 7})
    with pytest.raises(StageError, match="refused generated code") as error:
        gxx.compile_cpp(code, TARGET, {})
    assert error.value.statement == 7


def test_flags_hold_the_level_and_nothing_of_this_machine():
    for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"):
        chosen = gxx.flags(parse_target(f"cpu:{level}"), {})
        assert "-march=native" not in chosen
        assert any(f.startswith("-march=") for f in chosen)
    own = gxx.flags(TARGET, {"compile_flags": "-DUSER=1 -O1"})
    assert own[-2:] == ["-DUSER=1", "-O1"]


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_level_compiles(level):
    program = trace(
        matmul_relu, name="mm", static={"dtype": "float16"}, consts={"M": 64, "N": 64, "K": 64}
    )
    target = parse_target(f"cpu:{level}")
    artifact = gxx.compile_cpp(cpu.generate(program, target, Specialization()), target, {})
    assert artifact.files[gxx.LIBRARY][:4] == b"\x7fELF"


def processor_seconds(work):
    before = os.times().children_user
    work()
    return os.times().children_user - before


def test_a_compile_costs_little_more_than_one_large_header(tmp_path):
    """One second on a processor that reads <regex> in 0.83 s: so the limit moves with the machine."""
    program = trace(
        attention,
        name="attention",
        static={"causal": True},
        consts={"batch": 1, "heads": 2, "seq": 200, "dim": 64},
    )
    code = cpu.generate(program, TARGET, Specialization())
    header = tmp_path / "header.cpp"
    header.write_text("#include <regex>\n")
    read = [*cxx.command(TARGET), "-O3", "-std=c++17", "-c", str(header), "-o", os.devnull]
    attentions, headers = [], []
    for _ in range(3):
        attentions.append(processor_seconds(lambda: gxx.compile_cpp(code, TARGET, {})))
        headers.append(processor_seconds(lambda: subprocess.run(read, check=True)))
    assert min(attentions) <= min(headers) / 0.83, (attentions, headers)


def test_generated_text_is_deterministic():
    assert code_of().source == code_of().source
    assert "#include <" not in code_of().source


def debug_option(X):
    X: T.Tensor((4,), "float32")
    Y = T.empty((4,), "float32")
    with T.Kernel(1, threads=128) as bx:
        T.copy(X, Y)
    return Y


def test_debug_option_changes_the_flags():
    assert "-O0" in gxx.flags(TARGET, {DEBUG_CPU: "1"})
    assert "-O3" in gxx.flags(TARGET, {})
    assert build_eager(debug_option).code.launches[0].scratch_bytes == 0


def test_a_full_disk_is_no_fault_of_the_code(tmp_path):
    # Files may not grow past a part of the library, which is what a full disk looks like.
    script = (
        "import resource, tileops, torch\n"
        "from tests.programs.samples import axpy\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))\n"
        "try:\n"
        "    axpy(torch.ones(3), torch.ones(3), 1.0)\n"
        "except tileops.ToolchainError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    environment = {**os.environ, "TILEOPS_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for limit, expected in (
        (100, "ToolchainError op sample_axpy: the compile for cpu"),
        (4096, "ToolchainError g++ failed, which worked in "),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script.format(limit)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(expected), done.stdout + done.stderr
        assert "TMPDIR" in done.stdout


def test_temporary_files_of_the_compiler_stay_in_its_folder(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    monkeypatch.setenv("TMPDIR", "/proc")  # where g++ can write nothing
    assert gxx.compile_cpp(code_of(), TARGET, {}).files[gxx.LIBRARY]
