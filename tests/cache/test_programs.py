"""The cache under real programs: CPU kernels that run, GPU artifacts compiled without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.cache import samples
from tests.kit.effort import effort
from tileops import counters, log, option
from tileops.cache.kernel_cache import KernelCache, clear_cache
from tileops.cache.store import store
from tileops.cli.main import main
from tileops.errors import ArgumentError, CompileMissError


@tileops.jit(out_idx=[-1])
def doubled(N, block=128):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + A[bx * block + i]

    return main


@pytest.fixture(autouse=True)
def _clean_memory() -> None:
    store().clear_memory()


SIX = Path(__file__).with_name("six_programs.py")


def _start(root: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SIX), *map(str, arguments)],
        env=samples.environment(root), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _race(root: Path, folder: Path, *, faulty: bool = False) -> list[dict[str, object]]:
    """Processes that begin together; with ``faulty``, a fifth of their file calls fail."""
    seeds = range(effort(4, 8))
    running = [_start(root, folder / "go", *([seed] if faulty else [])) for seed in seeds]
    deadline = time.monotonic() + 60
    while len(list(folder.glob("ready.*"))) < len(seeds) and time.monotonic() < deadline:
        time.sleep(0.01)
    (folder / "go").write_text("")
    return [samples.result(process, 300) for process in running]


@pytest.mark.slow
def test_processes_compile_six_programs_once(root: Path, tmp_path: Path) -> None:
    results = _race(root, tmp_path)
    assert all(result["right"] and result["warnings"] == [] for result in results)
    assert sum(int(str(result["compiles"])) for result in results) == 6
    assert len({json.dumps(result["digests"], sort_keys=True) for result in results}) == 1
    assert len(list((root / "programs").iterdir())) == 6
    _nothing_half_made(root)


@pytest.mark.slow
def test_processes_on_a_failing_file_system(root: Path, tmp_path: Path) -> None:
    """A fifth of rename, replace, rmdir and open fail: right results, equal code, nothing left."""
    results = _race(root, tmp_path, faulty=True)
    assert all(result["right"] for result in results)
    assert len({json.dumps(result["digests"], sort_keys=True) for result in results}) == 1
    for result in results:
        general = [w for w in result["warnings"] if "damaged" not in w]  # type: ignore[attr-defined]
        assert len(general) <= 1, general
    _nothing_half_made(root)
    after = samples.result(_start(root), 300)
    assert (after["right"], after["warnings"]) == (True, [])
    assert samples.result(_start(root), 300)["compiles"] == 0


def _nothing_half_made(root: Path) -> None:
    assert list((root / ".state" / "staging").iterdir()) == []
    kept = {".state", ".lock"}
    hidden = [p for p in root.rglob(".*") if p.name not in kept]
    assert hidden == []


def _flipped(data: bytes, other: bytes) -> bytes:
    at = min(2000, len(data) // 2)
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


# One entry each.
DAMAGES: tuple[tuple[str, Callable[[bytes, bytes], bytes | None]], ...] = (
    ("kernel_lib.so", _flipped),
    ("kernel_lib.so", lambda data, other: data[: len(data) // 2]),
    ("kernel_lib.so", lambda data, other: other),
    ("kernel_lib.so", lambda data, other: None),
    ("manifest.json", _flipped),
    ("device_kernel.cpp", lambda data, other: b""),
)


@pytest.mark.slow
def test_a_damaged_kernel_never_runs(root: Path) -> None:
    assert samples.result(_start(root), 300)["compiles"] == 6
    folders = sorted((root / "programs").iterdir())
    contents = [
        (folder / name).read_bytes() for folder, (name, _) in zip(folders, DAMAGES, strict=True)
    ]
    for number, (folder, (name, damage)) in enumerate(zip(folders, DAMAGES, strict=True)):
        (folder / name).unlink()
        damaged = damage(contents[number], contents[number - 1])
        if damaged is not None:
            (folder / name).write_bytes(damaged)
    after = samples.result(_start(root), 300)
    assert after["right"]
    assert after["compiles"] == 6
    warned = "\n".join(map(str, after["warnings"]))  # type: ignore[call-overload]
    assert all(str(folder) in warned for folder in folders)
    healed = samples.result(_start(root), 300)
    assert (healed["right"], healed["compiles"], healed["warnings"]) == (True, 0, [])


@pytest.mark.slow
def test_each_file_of_an_entry_damaged_in_each_way(tmp_path: Path) -> None:
    """Right result, one compile and one warning with the path; the process after that: neither."""
    found = samples.drive("damaged_files", tmp_path)
    names, rows = found["names"], found["rows"]
    assert {"manifest.json", "program.txt", "kernel_lib.so"} <= set(names)  # type: ignore[call-overload]
    assert len(rows) >= 5 * len(names)  # type: ignore[arg-type]
    for row in rows:  # type: ignore[attr-defined]
        case = (row["name"], row["damage"])
        assert (row["next"]["right"], row["next"]["compiles"]) == (True, 1), case
        assert len(row["next"]["warnings"]) == 1, (case, row["next"])
        assert row["path"] in row["next"]["warnings"][0]
        assert row["last"] == {"right": True, "compiles": 0, "warnings": [], "status": 0}, case


def test_a_gpu_artifact_without_a_gpu(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = doubled.get_tir(1000)
    events: list[counters.CompileEvent] = []
    remove = counters.on_compile(events.append)
    try:
        tileops.compile(program, target="cuda:sm_90")
        store().clear_memory()
        counters.stats(reset=True)
        kernel = KernelCache().cached(program, target="cuda:sm_90")
        assert counters.stats()["compiles"] == 0
    finally:
        remove()
    assert [event.target for event in events] == ["cuda:sm_90a"]
    folder = kernel.artifact.path
    assert folder is not None
    names = {path.name for path in folder.iterdir()}
    assert {"kernel.py", "launch0.ptx", "launch0.cubin", "params.json", "program.txt"} <= names
    assert (folder / "kernel.cubin").readlink() == Path("launch0.cubin")
    assert b".target sm_90a" in (folder / "launch0.ptx").read_bytes()
    capsys.readouterr()
    assert main(["cache", "show", folder.name[:16]]) == 0
    shown = capsys.readouterr().out
    assert "registers" in shown
    assert "@triton.jit" in shown
    assert json.loads((folder / "params.json").read_text())[0]["name"] == "A"


def test_targets_have_entries_of_their_own(root: Path) -> None:
    program = doubled.get_tir(2000)
    kernels = [tileops.compile(program, target=f"cuda:sm_{arch}") for arch in (80, 90, 100)]
    assert len({kernel.artifact.hash for kernel in kernels}) == 3
    for kernel, arch in zip(kernels, ("sm_80", "sm_90a", "sm_100a"), strict=True):
        assert f".target {arch}" in kernel.get_ptx()


def test_strict_mode_names_op_and_key(root: Path) -> None:
    program = doubled.get_tir(3000)
    with option.strict(), pytest.raises(CompileMissError, match=r"doubled|main") as caught:
        tileops.compile(program, target="cpu")
    assert "key " in str(caught.value)
    tileops.compile(program, target="cpu")
    with option.strict():
        tileops.compile(program, target="cpu")


def test_the_facade_of_another_system(root: Path) -> None:
    a = torch.randn(500)
    kernel = KernelCache().cached(doubled.get_tir(500), target="cpu")
    assert torch.equal(kernel(a), a + a)
    assert len(list((root / "programs").iterdir())) == 1
    clear_cache()
    assert list((root / "programs").iterdir()) == []
    assert torch.equal(kernel(a), a + a), "a loaded kernel stays"
    with pytest.raises(ArgumentError, match=r"expected a T\.prim_func"):
        KernelCache().cached()


def test_a_compile_is_one_log_line(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    log._warned.clear()
    with caplog.at_level("INFO", logger="tileops"):
        tileops.compile(doubled.get_tir(4000), target="cpu")
    lines = [m for m in caplog.messages if m.startswith("compiled ")]
    assert len(lines) == 1
    assert "cpu:" in lines[0]
