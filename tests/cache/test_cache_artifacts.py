"""save_cache_artifacts and load_cache_artifacts, beside torch's pair of these names."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import tileops
from tests.cache import samples
from tests.cache.test_toolchain_match import call
from tileops import counters, option
from tileops.cache import Store, artifacts
from tileops.errors import ArgumentTypeError, CacheError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of this process, with nothing used yet."""
    found = Store()
    monkeypatch.setattr(artifacts, "store", lambda: found)
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "first"))
    return found


def test_another_machine_has_what_was_used_here(store: Store, tmp_path: Path) -> None:
    for number in (2, 1):
        store.fetch(samples.key(number), lambda n=number: samples.built(n))
    data = tileops.save_cache_artifacts()
    assert data == tileops.save_cache_artifacts()
    store.clear_memory()
    with option.cache_dir(tmp_path / "second"):
        assert tileops.load_cache_artifacts(data) == 2
        for asked in (store, Store()):  # in memory and on disk
            for number in (1, 2):
                found = asked.get(samples.key(number))
                assert found is not None
                content = samples.content(number, "launch0.cubin")
                assert found.files["launch0.cubin"] == content
                assert "kernel.py" not in found.files  # only what runs
        assert tileops.save_cache_artifacts() == data


def test_nothing_used_gives_nothing(store: Store) -> None:
    assert tileops.load_cache_artifacts(tileops.save_cache_artifacts()) == 0


def test_what_is_not_whole_is_refused_and_nothing_kept(store: Store, tmp_path: Path) -> None:
    for number in (0, 1):
        store.fetch(samples.key(number), lambda n=number: samples.built(n))
    data = tileops.save_cache_artifacts()
    pick = random.Random(7)
    wrong = [
        b"",
        data[:-1],
        data + b"x",
        data.replace(samples.key(0).hash().encode(), b"0" * 64, 1),
    ]
    index = data.split(b"\n")[1]
    for text in (b"3", b"{}", b'[["a"]]', b'[["a", true]]', b"[" * 100_000, b"[]"):
        wrong.append(data.replace(index, text, 1))
    for _ in range(200):
        flipped = bytearray(data)
        flipped[pick.randrange(len(data))] ^= 1 << pick.randrange(8)
        wrong.append(bytes(flipped))
    store.clear_memory()
    with option.cache_dir(tmp_path / "second"):
        for bad in wrong:
            with pytest.raises(CacheError, match=r"the bytes that .*save_cache_artifacts"):
                tileops.load_cache_artifacts(bad)
        assert store.used() == []
        assert store.get(samples.key(0)) is None
    with pytest.raises(ArgumentTypeError, match=r"load_cache_artifacts: expected .*, got tuple"):
        tileops.load_cache_artifacts((data, None))  # type: ignore[arg-type]


def test_a_program_runs_from_them_without_a_compile(tmp_path: Path) -> None:
    with option.cache_dir(tmp_path / "first"):
        call()
        assert counters.stats()["compiles"] == 1
        data = tileops.save_cache_artifacts()
    with option.cache_dir(tmp_path / "second"), option.strict():
        with pytest.raises(tileops.CompileMissError):
            call()
        tileops.load_cache_artifacts(data)
        call()
    assert counters.stats()["compiles"] == 0


WITH_TORCH = """
import json, sys, torch, tileops
from pathlib import Path
from tests.cache.test_toolchain_match import relu
folder, is_first = Path(sys.argv[1]), sys.argv[2] == "first"
if not is_first:
    torch.compiler.load_cache_artifacts((folder / "torch").read_bytes())
    assert tileops.load_cache_artifacts((folder / "tileops").read_bytes()) == 1
    tileops.option.strict()
x = torch.randn(1000)
assert torch.equal(torch.compile(lambda x: relu(x) + 1)(x), torch.relu(x) + 1)
if is_first:
    (folder / "torch").write_bytes(torch.compiler.save_cache_artifacts()[0])
    (folder / "tileops").write_bytes(tileops.save_cache_artifacts())
print(json.dumps(tileops.stats()["compiles"]))
"""


def test_they_travel_beside_those_of_torch_compile(tmp_path: Path) -> None:
    compiles = []
    for name in ("first", "second"):
        own = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"{name}_torch")}
        done = subprocess.run(
            [sys.executable, "-c", WITH_TORCH, str(tmp_path), name],
            env=samples.environment(tmp_path / name, **own),
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        compiles.append(json.loads(done.stdout.splitlines()[-1]))
    assert compiles == [1, 0]
