"""Compiles for every target without a GPU, and what the code must hold."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import tileops.language
from benchmarks.pair import all_pairs
from tests.kit.interpreted import CUDA
from tests.programs.typical import PROGRAMS, _matmul
from tileops import forks, settings
from tileops.codegen import gpu
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.codegen.triton import generate
from tileops.compiler import Artifact, compile_kernel
from tileops.compiler.triton_environment import pinned
from tileops.target import parse_target

# One of each kind of program on every target; the rest differ in masks only.
EVERYWHERE = ("matmul_dynamic", "add", "rms_norm_1000", "softmax", "split_k", "attention_64")


@functools.cache
def code(name: str, target: str, *, fast: bool) -> KernelCode:
    return generate(PROGRAMS[name](), parse_target(target), Specialization(fast=fast))


@functools.cache
def build(name: str, target: str, *, fast: bool = True) -> Artifact:
    return compile_kernel(code(name, target, fast=fast), parse_target(target), {})


def ptx(artifact: Artifact, launch: int = 0) -> str:
    return artifact.files[f"launch{launch}.ptx"].decode()


def check_resources(artifact: Artifact, target: str) -> None:
    for image in artifact.launches:
        assert image.shared_bytes <= parse_target(target).shared_limit
        # ptxas gives the matmul with run-time sizes a frame of 8 bytes on sm_80, at 96 registers.
        most = 0 if target == "cuda:sm_90" else 8
        assert image.spills <= most, f"{image.entry} keeps {image.spills} bytes in memory"
        assert image.registers > 0
        assert image.image in artifact.files


@pytest.mark.parametrize("target", CUDA)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_program_compiles_for_every_target(name: str, target: str) -> None:
    check_resources(build(name, target), target)


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(EVERYWHERE)))
def test_the_rest_compiles_for_hopper(name: str) -> None:
    check_resources(build(name, "cuda:sm_90"), "cuda:sm_90")


@pytest.mark.parametrize("name", ["matmul_dynamic", "attention_64"])
def test_general_kernels_compile(name: str) -> None:
    check_resources(build(name, "cuda:sm_90", fast=False), "cuda:sm_90")


@pytest.mark.parametrize(
    "name", ["matmul_relu", "matmul_dynamic", "attention", "attention_causal_odd"]
)
def test_hopper_uses_its_tensor_cores_and_asynchronous_copies(name: str) -> None:
    text = ptx(build(name, "cuda:sm_90"))
    assert "wgmma.mma_async" in text
    assert re.search(r"cp\.async\.(cg|bulk)", text)
    assert ".target sm_90a" in text


@pytest.mark.parametrize("name", ["add", "rms_norm_768", "rms_norm_5120"])
def test_rows_move_in_sixteen_byte_accesses(name: str) -> None:
    text = ptx(build(name, "cuda:sm_90"))
    accesses = [x for x in re.findall(r"(?:ld|st)\.global\S*", text) if "L2::" not in x]
    assert accesses
    assert all("v4" in x or ".v2.b64" in x or "b128" in x for x in accesses), accesses


def test_cuobjdump_agrees_with_the_resources_read_from_the_cubin(tmp_path: Path) -> None:
    import triton

    artifact = build("attention", "cuda:sm_90")
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(artifact.files["launch0.cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    listing = subprocess.run(
        [tool, "-res-usage", cubin], check=True, capture_output=True, text=True
    ).stdout
    assert re.search(r"STACK:0\b", listing)
    assert f"REG:{artifact.launches[0].registers}" in listing


def test_matmul_compiles_for_cdna3() -> None:
    artifact = build("matmul_relu", "hip:gfx942")
    assert artifact.files["launch0.hsaco"][:4] == b"\x7fELF"
    assert "v_mfma" in artifact.files["launch0.amdgcn"].decode()
    assert artifact.launches[0].threads == 128


def test_a_launch_that_spills_gets_more_warps() -> None:
    """256 x 128 float32 sums are 256 registers a thread in 4 warps, as many as there are."""
    program = _matmul(4096, block_M=256, block_N=128, block_K=64)
    target = parse_target("cuda:sm_90")
    code = generate(program, target, Specialization(fast=True))
    assert code.launches[0].num_warps == 4
    (image,) = compile_kernel(code, target, {}).launches
    assert (image.threads, image.spills) == (256, 0)
    assert any("warps 4 -> 8" in note for note in image.notes)
    (bound,) = compile_kernel(code, target, {"tl.maxnreg": "255"}).launches
    assert bound.threads == 128


def test_a_compile_depends_on_its_arguments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = build("add", "cuda:sm_90")
    for name, value in {
        "TRITON_F32_DEFAULT": "ieee",
        "TRITON_DEFAULT_FP_FUSION": "0",
        "TRITON_DISABLE_LINE_INFO": "0",
        "DISABLE_LLVM_OPT": "1",
        "PTXAS_OPTIONS": "--opt-level 0",
        "TRITON_OVERRIDE_ARCH": "sm80",
    }.items():
        monkeypatch.setenv(name, value)
    again = compile_kernel(code("add", "cuda:sm_90", fast=True), parse_target("cuda:sm_90"), {})
    assert again.files == plain.files
    assert os.environ["TRITON_OVERRIDE_ARCH"] == "sm80"


def test_the_assembler_sees_the_environment_of_all_compilers(monkeypatch, tmp_path):
    """And works in the folder of the compile, of which it leaves nothing behind elsewhere."""
    seen = []
    real = forks.run_process

    def run(command, **more):
        seen.append((command, more.get("env")))
        return real(command, **more)

    for name in ("LD_LIBRARY_PATH", "CUDA_HOME", "PTXAS_OPTIONS", "NVCC_APPEND_FLAGS", "LANG"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setattr(forks, "run_process", run)
    target = parse_target("cuda:sm_90")
    compile_kernel(code("add", "cuda:sm_90", fast=True), target, {}, tmp_path)
    runs = [(command, env) for command, env in seen if "--version" not in command]
    assert runs
    for command, env in runs:
        assert env == settings.compiler_environment(str(tmp_path)), command
        assert any(str(word).startswith(f"{tmp_path}/") for word in command)
    assert list(tmp_path.iterdir()) == []


def test_another_threads_tools_are_left_alone(tmp_path):
    """A program of the user's may call Triton meanwhile."""
    from triton.backends.nvidia import compiler

    found = []
    with pinned(tmp_path):
        files = compiler.tempfile
        thread = threading.Thread(target=lambda: found.append(files.NamedTemporaryFile))
        thread.start()
        thread.join()
        assert files.NamedTemporaryFile is not tempfile.NamedTemporaryFile
    assert found == [tempfile.NamedTemporaryFile]
    assert compiler.tempfile is tempfile


def test_artifacts_hold_no_path() -> None:
    artifact = build("add", "cuda:sm_90")
    here = str(Path(__file__).resolve().parents[2]).encode()
    for name, content in artifact.files.items():
        assert here not in content, name
        assert b"/tmp/" not in content, name


def test_triton_keeps_no_cache(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_targets import build\n"
        "assert build('add', 'cuda:sm_90').launches\n"
    )
    environment = settings.child_environment(
        {"HOME": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent)],
        check=True,
        cwd=root,
        env=environment | {"PYTHONPATH": f"{root}:{environment.get('PYTHONPATH', '')}"},
    )
    assert not list(tmp_path.iterdir())


def compile_pairs(target: str) -> None:
    """Compile the first program of each file of pairs at its small sizes."""
    first = dict(reversed(list(all_pairs())))
    for pair in first.values():
        program = pair.build(tileops.language, small=True).program
        code = gpu.generate(program, parse_target(target), Specialization(fast=True))
        compile_kernel(code, parse_target(target), {})


@pytest.mark.skipif(
    "TILEOPS_OTHER_TRITON" not in os.environ,
    reason="TILEOPS_OTHER_TRITON names no folder with a second version of Triton",
)
def test_the_other_version_of_triton_compiles_the_same_text() -> None:
    script = (
        "import triton\n"
        "from tests.compile.test_targets import PROGRAMS, build, check_resources, compile_pairs\n"
        "for name in PROGRAMS: check_resources(build(name, 'cuda:sm_90'), 'cuda:sm_90')\n"
        "compile_pairs('cuda:sm_90')\n"
        "print(triton.__version__)\n"
    )
    root = Path(__file__).resolve().parents[2]
    path = f"{os.environ['TILEOPS_OTHER_TRITON']}:{root}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        cwd=root,
        capture_output=True,
        text=True,
        env=settings.child_environment({"PYTHONPATH": path}),
    )
    assert done.returncode == 0, done.stderr[-2000:]
