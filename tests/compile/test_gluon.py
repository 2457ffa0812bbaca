"""Launches written in Gluon, from hand-made text to machine code and record, without a GPU."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.compile import gluon_matmul
from tests.compile.test_tensor_maps import copy
from tileops import cache, settings
from tileops.codegen.kernel_code import KernelCode, KernelParam, LaunchCode
from tileops.compiler import (
    Artifact,
    StageError,
    compile_kernel,
    content_hash,
    toolchain_of,
)
from tileops.errors import InternalError, SharedMemoryError
from tileops.ir.program import Program
from tileops.jit.record import built_of
from tileops.target import parse_target

HOPPER = parse_target("cuda:sm_90")
# Bytes of a parameter of each type, as PTX names it.
SIZES = {"u32": 4, "u64": 8}
# What the record's parameters are in bytes, alignment and order.
MAP, EXTENT, STRIDE, INTEGER, POINTER = (128, 64), (4, 4), (8, 8), (4, 4), (8, 8)
DESCRIPTOR = [MAP, EXTENT, EXTENT, STRIDE, STRIDE]
EXPECTED = [*DESCRIPTOR * 3, INTEGER, INTEGER, POINTER, POINTER]
KINDS = ["tensormap", *["null"] * 4] * 3 + ["slot"] * 2 + ["global_scratch", "profile_scratch"]


def recorded(program: Program, code: KernelCode, artifact: Artifact) -> dict[str, Any]:
    key = cache.key_of(ir="", options=[], target="", specialization={}, codegen="", toolchain={})
    record: dict[str, Any] = built_of(program, HOPPER, code, artifact, key).manifest["record"]
    return record


@functools.cache
def built() -> tuple[Artifact, dict[str, Any]]:
    """The artifact and its record."""
    program = gluon_matmul.program()
    code = gluon_matmul.code(program)
    artifact = compile_kernel(code, HOPPER, {})
    return artifact, recorded(program, code, artifact)


def parameters(ptx: str) -> list[tuple[int, int]]:
    """Size and alignment of each parameter of the entry, in bytes."""
    head = ptx[ptx.index(".entry") : ptx.index("{", ptx.index(".entry"))]
    found = []
    for text in re.findall(r"\.param (.*?),?\n", head):
        array = re.match(r"\.align (\d+) \.b8 \w+\[(\d+)\]", text)
        size = int(array[2]) if array else SIZES[text.split()[0].lstrip(".")]
        found.append((size, int(array[1]) if array else size))
    return found


def check() -> None:
    artifact, record = built()
    (launch,) = record["launches"]
    (image,) = artifact.launches
    ptx = artifact.files["launch0.ptx"].decode()
    assert "cp.async.bulk.tensor.2d.shared" in ptx
    assert "cp.async.bulk.tensor.2d.global" in ptx
    assert "wgmma.mma_async" in ptx
    assert ".target sm_90a" in ptx
    # Two warp groups that multiply, and the loader's warp in a group of its own.
    assert image.threads == int(re.findall(r"\.reqntid (\d+)", ptx)[0]) == 384
    assert (image.spills, image.notes) == (0, ())
    # A row of 256 halves is four swizzled rows of 128 bytes.
    assert [one["box"] for one in image.tensormaps] == [[128, 64], [64, 64], [128, 64]]
    assert all((one["swizzle"], one["elem_type"]) == (3, 6) for one in image.tensormaps)
    assert parameters(ptx) == EXPECTED
    assert [param["kind"] for param in launch["params"]] == KINDS
    assert launch["threads"] == 384


def test_a_product_with_two_rings_compiles_for_hopper() -> None:
    check()


@pytest.mark.skipif(
    "TILEOPS_OTHER_TRITON" not in os.environ,
    reason="TILEOPS_OTHER_TRITON names no folder with a second version of Triton",
)
def test_the_other_version_of_triton_compiles_it_too() -> None:
    script = (
        "import triton\n"
        "from tests.compile import test_gluon, test_tensor_maps\n"
        "test_gluon.check()\n"
        "for dtype in test_tensor_maps.TYPES:\n"
        "    test_tensor_maps.test_the_element_type_is_the_drivers(dtype)\n"
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
    assert done.stdout.startswith("3.6")


def test_a_process_that_infers_a_layout_exits_silently() -> None:
    script = """
from tests.compile import gluon_matmul
from tileops.compiler import compile_kernel
from tileops.target import parse_target

rows = "gl.arange(0, ROWS, gl.SliceLayout(1, layout))"
source = gluon_matmul.SOURCE.replace("    c.store(", f"    total += {rows}[:, None]\\n    c.store(")
assert rows in source
code = gluon_matmul.code(gluon_matmul.program(), source)
compile_kernel(code, parse_target("cuda:sm_90"), {})
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        env=settings.child_environment({}),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""


def test_the_key_names_the_content_of_gluons_files() -> None:
    files = {str(path) for path in toolchain_of(HOPPER, content_hash).files}
    for name in ("_runtime.py", "language/_semantic.py", "language/nvidia/hopper/tma.py"):
        assert any(path.endswith(f"experimental/gluon/{name}") for path in files), name


def test_a_launch_that_does_not_fit_is_refused_as_it_is() -> None:
    text = gluon_matmul.SOURCE.replace("A_SLOTS = gl.constexpr(3)", "A_SLOTS = gl.constexpr(8)")
    code = gluon_matmul.code(gluon_matmul.program(), text)
    with pytest.raises(SharedMemoryError) as caught:
        compile_kernel(code, HOPPER, {})
    assert "also without pipelining" not in str(caught.value)


def test_a_spill_is_noted_and_changes_nothing() -> None:
    """64 float32 a thread wait at a barrier, and a thread has 32 registers."""
    kept = """
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    values = box.load(layout)
    box.store(values * 2)
    fence_async_shared()
"""
    code = copy("float32", (64, 128), 128)
    wait = "    mbarrier.wait(full, 0)\n"
    spilling = replace(code, source=code.source.replace(wait, wait + kept))
    (plain,) = compile_kernel(spilling, HOPPER, {}).launches
    assert (plain.spills, plain.notes) == (0, ())
    (image,) = compile_kernel(spilling, HOPPER, {"tl.maxnreg": "32"}).launches
    assert image.spills > 0
    assert image.notes == (f"main: a thread keeps {image.spills} bytes of its registers in memory",)
    assert image.threads == plain.threads == 128


def test_clusters_are_compiled_and_recorded() -> None:
    source = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def main(A):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]])
    x = gl.arange(0, 256, layout=layout)
    gl.store(A + gl.program_id(0) * 256 + x, x.to(gl.float16))
"""
    program = gluon_matmul.program()
    grid = gluon_matmul.code(program).launches[0].grid
    params = (KernelParam("A", "tensor", 0, "ptr", "float16", aligned=True),)
    launch = LaunchCode(
        "main", params, grid, num_warps=4, language="gluon", cluster=2, dependent=True
    )
    code = KernelCode("triton", source, (launch,))
    artifact = compile_kernel(code, HOPPER, {})
    assert ".reqnctapercluster 2" in artifact.files["launch0.ptx"].decode()
    (record,) = recorded(program, code, artifact)["launches"]
    assert (record["cluster"], record["dependent"], record["threads"]) == (2, True, 128)
    (plain,) = built()[1]["launches"]
    assert not {"cluster", "dependent"} & set(plain)


def test_a_tensor_map_in_a_cluster_is_refused() -> None:
    code = copy("float16", (64, 64), 128)
    together = replace(code, launches=(replace(code.launches[0], cluster=2),))
    with pytest.raises(InternalError, match="main: a launch of clusters takes no tensor map"):
        compile_kernel(together, HOPPER, {})


def test_an_error_names_the_line_of_the_text() -> None:
    wrong = gluon_matmul.SOURCE.replace("total.to(C.dtype)", "total.of(C.dtype)")
    code = gluon_matmul.code(gluon_matmul.program(), wrong)
    with pytest.raises(StageError) as caught:
        compile_kernel(code, HOPPER, {})
    assert "c.store(total.of(C.dtype))" in str(caught.value)
