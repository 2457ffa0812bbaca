"""CubinCache: memory, then disk, verified, thread-safe, and only its own files are ever removed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from tests.cache import samples
from tileops import option
from tileops.cache import catalog, cubin_cache, store
from tileops.cache.cubin_cache import CacheEntry, CacheKey, CubinCache
from tileops.cache.kernel_cache import clear_cache
from tileops.errors import InternalError

KEY = CacheKey("gemm", (("block", 128), ("causal", True)), (((16, 32), "float16"),), "sm_90a")
ENTRY = CacheEntry(KEY, "// ptx\n", b"\x7fELF cubin", {"threads": 128})


@pytest.fixture(autouse=True)
def _nothing_in_memory() -> None:
    store().clear_memory()


def test_memory_then_disk(root: Path) -> None:
    cache = CubinCache()
    assert cache.get(KEY) is None
    cache.put(ENTRY)
    assert cache.get(KEY) is ENTRY
    assert CubinCache().get(KEY) == ENTRY
    folder = root / "programs" / KEY.in_store().hash()
    assert (folder / "kernel.ptx").read_text() == "// ptx\n"
    assert (folder / "kernel.cubin").read_bytes() == ENTRY.cubin_bytes


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    CubinCache(tmp_path).put(ENTRY)
    assert CubinCache(tmp_path).get(KEY) == ENTRY
    names = {p.name for p in tmp_path.iterdir() if p.is_file()}
    assert names == {f"{KEY.hash()}.{suffix}" for suffix in ("cubin", "ptx", "json")}
    assert (tmp_path / f"{KEY.hash()}.ptx").read_text() == "// ptx\n"
    assert CubinCache().get(KEY) is None


def test_what_is_put_again_replaces_what_was_there(root: Path) -> None:
    CubinCache().put(dataclasses.replace(ENTRY, cubin_bytes=None))
    assert CubinCache().get(KEY) == dataclasses.replace(ENTRY, cubin_bytes=None)
    CubinCache().put(ENTRY)
    store().clear_memory()
    assert CubinCache().get(KEY) == ENTRY


def test_the_store_finds_what_is_put_and_the_cache_what_is_stored(root: Path) -> None:
    CubinCache().put(ENTRY)
    found = store().get(KEY.in_store())
    assert found is not None
    assert found.files["kernel.cubin"] == ENTRY.cubin_bytes
    other = dataclasses.replace(KEY, fn_id="other")
    files = {"kernel.ptx": b"// other", "kernel.cubin": b"\x7fELF"}
    store().put(other.in_store(), files, {"name": "other", "metadata": {}})
    assert CubinCache().get(other) == CacheEntry(other, "// other", b"\x7fELF", {})


def test_the_commands_see_both_and_clearing_one_leaves_the_other(root: Path) -> None:
    program = samples.key()
    store().put(program, samples.built().files, samples.built().manifest)
    CubinCache().put(ENTRY)
    assert {(i.name, i.target, i.problem) for i in catalog.items()} == {
        ("gemm", "cuda:sm_90a", None), ("f0", "cuda:sm_90a", None),
    }  # fmt: skip
    assert [problem for _, problem in catalog.verify()] == [None, None]
    CubinCache().clear(disk=True)
    store().clear_memory()
    assert CubinCache().get(KEY) is None
    assert store().get(program) is not None
    CubinCache().put(ENTRY)
    clear_cache()
    store().clear_memory()
    assert store().get(program) is None
    assert CubinCache().get(KEY) == ENTRY


FILL = """
from tests.cache import samples
from tests.cache.test_cubin_cache import ENTRY
from tileops.cache import store
from tileops.cache.cubin_cache import CubinCache
store().put(samples.key(), samples.built().files, samples.built().manifest)
CubinCache().put(ENTRY)
"""


def test_the_commands_list_verify_and_prune_both(tmp_path: Path) -> None:
    environment = samples.environment(tmp_path)

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=True,
            env=environment, cwd=samples.ROOT,
        ).stdout  # fmt: skip

    run("-c", FILL)  # a process of its own: what a living one uses is not pruned
    listed = run("-m", "tileops", "cache", "ls")
    assert " gemm " in listed
    assert " f0 " in listed
    assert "2 entries, 0 damaged" in run("-m", "tileops", "cache", "verify")
    assert "2 entries removed" in run("-m", "tileops", "cache", "prune", "--limit", "0")
    assert "no entries" in run("-m", "tileops", "cache", "ls")


def test_a_damaged_file_in_the_store_is_a_miss(root: Path) -> None:
    CubinCache().put(ENTRY)
    (root / "programs" / KEY.in_store().hash() / "kernel.cubin").write_bytes(b"another")
    store().clear_memory()
    assert [problem is None for _, problem in catalog.verify()] == [False]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert CubinCache().get(KEY) is None
        CubinCache().put(ENTRY)
    store().clear_memory()
    assert CubinCache().get(KEY) == ENTRY


@pytest.mark.parametrize(
    "change",
    [
        {"fn_id": "gemm2"},
        {"template_kwargs": (("block", 64), ("causal", True))},
        {"template_kwargs": (("block", 128), ("causal", 1))},
        {"input_shapes": (((16, 33), "float16"),)},
        {"input_shapes": (((16, 32), "bfloat16"),)},
        {"arch": "sm_90"},
    ],
    ids=str,
)
def test_each_part_changes_the_hash(change: dict[str, object]) -> None:
    other = dataclasses.replace(KEY, **change)  # type: ignore[arg-type]
    assert other.hash() != KEY.hash()
    assert len(KEY.hash()) == 64


def test_a_part_without_a_canonical_text_fails_closed() -> None:
    with pytest.raises(InternalError):
        dataclasses.replace(KEY, template_kwargs=(("f", object()),)).hash()
    with pytest.raises(InternalError):
        CubinCache(enable_disk=False).put(dataclasses.replace(ENTRY, metadata={"f": object()}))


def test_without_disk(root: Path) -> None:
    cache = CubinCache(enable_disk=False)
    cache.put(ENTRY)
    assert cache.get(KEY) is ENTRY
    assert CubinCache().get(KEY) is None
    assert not root.exists()


def test_ptx_alone(tmp_path: Path) -> None:
    CubinCache(tmp_path).put(dataclasses.replace(ENTRY, cubin_bytes=None))
    found = CubinCache(tmp_path).get(KEY)
    assert found is not None
    assert found.cubin_bytes is None
    assert found.ptx_source == "// ptx\n"


def test_clear(tmp_path: Path) -> None:
    cache = CubinCache(tmp_path)
    cache.put(ENTRY)
    (tmp_path / "mine.txt").write_text("kept")
    cache.clear()
    assert cache.get(KEY) is not None
    cache.clear(disk=True)
    assert cache.get(KEY) is None
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("suffix", ["cubin", "ptx", "json"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "link"])
def test_damage_is_a_miss(tmp_path: Path, suffix: str, damage: str) -> None:
    CubinCache(tmp_path).put(ENTRY)
    path = tmp_path / f"{KEY.hash()}.{suffix}"
    data = path.read_bytes()
    path.unlink()
    match damage:
        case "truncate":
            path.write_bytes(data[:-3])
        case "flip":
            path.write_bytes(data.replace(data[2:3], b"#", 1))
        case "link":
            (tmp_path / "elsewhere").write_bytes(data)
            path.symlink_to(tmp_path / "elsewhere")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert CubinCache(tmp_path).get(KEY) is None
    CubinCache(tmp_path).put(ENTRY)
    assert CubinCache(tmp_path).get(KEY) == ENTRY


def test_a_directory_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    CubinCache(tmp_path).put(ENTRY)
    tmp_path.chmod(0o777)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert CubinCache(tmp_path).get(KEY) is None
    tmp_path.chmod(0o755)
    assert CubinCache(tmp_path).get(KEY) == ENTRY


def test_threads(tmp_path: Path) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        cache = CubinCache(tmp_path)
        for step in range(20):
            key = dataclasses.replace(KEY, fn_id=f"f{(number + step) % 5}")
            found = cache.get(key)
            if found is not None and found.ptx_source != key.fn_id:
                wrong.append(number)
            cache.put(CacheEntry(key, key.fn_id, key.fn_id.encode()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_global_cache() -> None:
    before = cubin_cache.get_global_cache()
    assert cubin_cache.get_global_cache() is before
    mine = CubinCache(enable_disk=False)
    cubin_cache.set_global_cache(mine)
    assert cubin_cache.get_global_cache() is mine
    cubin_cache.set_global_cache(before)


def test_the_default_directory_follows_the_settings(tmp_path: Path) -> None:
    with option.cache_dir(tmp_path):
        assert tmp_path / "programs" == cubin_cache.DEFAULT_CACHE_DIR
    with option.cache_disable():
        assert cubin_cache.DEFAULT_CACHE_DIR is None
