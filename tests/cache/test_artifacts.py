"""Real artifacts, for the CPU and for a GPU that is not here: shared, the same everywhere, healed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch

import tileops
import tileops.language as T
from tests.cache import samples
from tileops import counters, log, option
from tileops.cache.catalog import verify
from tileops.cache.store import store
from tileops.cli.main import main
from tileops.compiler import gxx

SHARED = '''
"""Threads of one process that compile for three targets and run what they can."""

import json
import sys
import threading
import time
from pathlib import Path

import torch

import tileops
import tileops.language as T


@tileops.jit(out_idx=[-1])
def shared(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 3.0

    return main


TARGETS = ("cpu:x86-64-v2", "cuda:sm_80", "cuda:sm_90")
threads, go, wrong = int(sys.argv[1]), Path(sys.argv[2]), []


def work(offset):
    x = torch.randn(100)
    for step in range(len(TARGETS)):
        target = TARGETS[(step + offset) % len(TARGETS)]
        kernel = tileops.compile(shared.get_tir(100), target=target)
        if target.startswith("cpu") and not torch.equal(kernel(x), x * 3.0):
            wrong.append(target)


while not go.exists():
    time.sleep(0.01)
workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(json.dumps({"compiles": tileops.stats()["compiles"], "wrong": wrong}))
'''


@tileops.jit(out_idx=[-1])
def tripled(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 3.0

    return main


def _start(script: Path, threads: int, go: Path, cache: Path, home: Path) -> subprocess.Popen[str]:
    home.mkdir(exist_ok=True)
    env = samples.environment(cache, HOME=str(home), PYTHONHASHSEED=str(threads))
    return subprocess.Popen(
        [*_python(), str(script), str(threads), str(go)],
        env=env, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _python() -> list[str]:
    import sys

    return [sys.executable]


def _tree(root: Path) -> dict[str, bytes | str]:
    """Everything under ``programs`` and ``scripts``: contents of files, targets of links."""
    found: dict[str, bytes | str] = {}
    for path in sorted(p for part in ("programs", "scripts") for p in (root / part).rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(root))] = os.readlink(path)  # noqa: PTH115
        elif path.is_file() and path.name != ".lock":
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


@pytest.mark.slow
def test_processes_and_threads_compile_each_target_once_and_alike(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = tmp_path / "shared_program.py"
    script.write_text(SHARED)
    crowd = [_start(script, 2, go, tmp_path / "crowd", tmp_path / f"home{n}") for n in range(3)]
    # Alone, from a copy in another folder, with another home, working directory and hash seed.
    elsewhere = tmp_path / "else where" / "shared_program.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text("# moved\n\n\n" + SHARED)
    alone = _start(elsewhere, 1, go, tmp_path / "alone", tmp_path / "another home")
    time.sleep(0.5)
    go.write_text("")
    results = [samples.result(process, 400) for process in (*crowd, alone)]
    assert all(result["wrong"] == [] for result in results)
    assert sum(int(str(result["compiles"])) for result in results[:3]) == 3
    assert results[3]["compiles"] == 3
    for name in ("crowd", "alone"):
        with option.cache_dir(tmp_path / name):
            assert [problem for _, problem in verify()] == [None] * 3
        assert list((tmp_path / name / ".state" / "staging").iterdir()) == []
    # The rows of a table stand in the order of the compiles; all else is equal byte for byte.
    programs = [
        {n: c for n, c in _tree(tmp_path / name).items() if n.startswith("programs/")}
        for name in ("crowd", "alone")
    ]
    assert programs[0] == programs[1]
    assert len(programs[0]) > 20
    places = [str(tmp_path), str(samples.ROOT), str(Path.home()), "site-packages"]
    for name, content in programs[0].items():
        data = content if isinstance(content, bytes) else content.encode()
        assert not [p for p in places if len(p) > 5 and p.encode() in data], name


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("launch0.cubin", _flip),
        ("launch0.cubin", _truncate),
        ("launch0.ptx", _flip),
        ("kernel.py", Path.unlink),
        ("manifest.json", _truncate),
    ],
    ids=["flipped cubin", "half a cubin", "flipped ptx", "no kernel.py", "half a manifest"],
)
def test_a_damaged_gpu_artifact_is_compiled_once_and_healed(
    root: Path, name: str, damage: Callable[[Path], None]
) -> None:
    program = tripled.get_tir(300)
    whole = _artifact(program)
    damage(whole[0] / name)
    counters.stats(reset=True)
    log._warned.clear()
    with pytest.warns(RuntimeWarning, match="damaged cache entry"):
        again = _artifact(program)
    assert again == whole
    assert counters.stats(reset=True)["compiles"] == 1
    assert _artifact(program) == whole
    assert counters.stats()["compiles"] == 0


def _artifact(program: object, target: str = "cuda:sm_90") -> tuple[Path, dict[str, bytes]]:
    from tileops.jit import provider

    with mock.patch.dict(provider._states, clear=True):  # what a new process knows
        store().clear_memory()
        kernel = tileops.compile(program, target=target)
        assert kernel.cache_path is not None
        return kernel.cache_path, dict(kernel.artifact.files)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
def test_copied_moved_read_only_and_carried(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    program = tripled.get_tir(301)
    _, files = _artifact(program, target)
    counters.stats(reset=True)
    copied = tmp_path / "copied"
    shutil.copytree(root, copied, symlinks=False)
    moved = tmp_path / "deep" / "moved"
    moved.parent.mkdir()
    shutil.move(copied, moved)
    with option.cache_dir(moved):
        assert _artifact(program, target)[1] == files
    for path in sorted(moved.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with option.cache_dir(tmp_path / "private"), option.cache_path(moved):
        path, found = _artifact(program, target)
        assert (path.parent, found) == (moved / "programs", files)
        assert not (tmp_path / "private" / "programs").exists()
    assert main(["cache", "export", str(tmp_path / "carried.tar")]) == 0
    with option.cache_dir(tmp_path / "other machine"):
        assert main(["cache", "import", str(tmp_path / "carried.tar")]) == 0
        assert _artifact(program, target)[1] == files
    assert counters.stats()["compiles"] == 0
    assert counters.stats()["disk_hits"] == 3
    for path in [moved, *moved.rglob("*")]:
        path.chmod(0o755)
    capsys.readouterr()


def test_the_script_beside_the_artifact_builds_it_again(root: Path, tmp_path: Path) -> None:
    path, files = _artifact(tripled.get_tir(302), "cpu")
    again = tmp_path / "again"
    again.mkdir()
    for name in ("compile.sh", "device_kernel.cpp"):
        (again / name).write_bytes(files[name])
    env = {**os.environ, "TILEOPS_INCLUDE": str(gxx.include_folder())}
    subprocess.run(["sh", str(again / "compile.sh")], env=env, check=True, cwd=tmp_path)
    assert (again / "kernel_lib.so").read_bytes() == files["kernel_lib.so"]
    assert path.is_dir()


def test_show_tells_the_resources_of_a_cubin(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = _artifact(tripled.get_tir(303))
    capsys.readouterr()
    assert main(["cache", "show", path.name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (launch,) = shown["manifest"]["resources"]
    assert 8 <= launch["registers"] <= 255
    assert launch["spills"] == 0
    assert launch["shared_bytes"] >= 0
    assert main(["cache", "show", path.name]) == 0
    text = capsys.readouterr().out.splitlines()
    heads = next(line.split() for line in text if line.startswith("launch "))
    row = dict(
        zip(heads, next(line.split() for line in text if line.startswith("0 ")), strict=True)
    )
    assert row["registers"] == str(launch["registers"])
    assert (row["spills"], row["shared_bytes"]) == ("0", str(launch["shared_bytes"]))


def test_a_loaded_kernel_outlives_its_entry(root: Path) -> None:
    x = torch.randn(304)
    kernel = tileops.compile(tripled.get_tir(304), target="cpu")
    assert torch.equal(kernel(x), x * 3.0)
    shutil.rmtree(root)
    assert torch.equal(kernel(x), x * 3.0)
