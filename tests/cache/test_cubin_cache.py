"""CubinCache: memory, then disk, verified, thread-safe, and only its own files are ever removed."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from pathlib import Path

import pytest

from tileops import option
from tileops.cache import cubin_cache
from tileops.cache.cubin_cache import CacheEntry, CacheKey, CubinCache
from tileops.errors import InternalError

KEY = CacheKey("gemm", (("block", 128), ("causal", True)), (((16, 32), "float16"),), "sm_90a")
ENTRY = CacheEntry(KEY, "// ptx\n", b"\x7fELF cubin", {"threads": 128})


def test_memory_then_disk(root: Path) -> None:
    cache = CubinCache()
    assert cache.get(KEY) is None
    cache.put(ENTRY)
    assert cache.get(KEY) is ENTRY
    assert CubinCache().get(KEY) == ENTRY
    names = {p.name for p in (root / "cubins").iterdir()}
    assert names == {f"{KEY.hash()}.{suffix}" for suffix in ("cubin", "ptx", "json")}
    assert (root / "cubins" / f"{KEY.hash()}.ptx").read_text() == "// ptx\n"


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
        assert tmp_path / "cubins" == cubin_cache.DEFAULT_CACHE_DIR
    with option.cache_disable():
        assert cubin_cache.DEFAULT_CACHE_DIR is None
