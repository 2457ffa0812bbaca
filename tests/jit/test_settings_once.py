"""A call that needs a kernel reads the settings once, and looks for the cache's directories once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tileops import cache, settings
from tileops.cache import directory, memo


@tileops.jit(name="settings_read_once")
def tripled(A: T.Tensor((T.dynamic("N"),), T.float32)):  # type: ignore[no-untyped-def, valid-type]
    (N,) = A.shape
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] * 3.0
    return B


@tileops.jit(name="settings_of_a_task")
def halved(A: T.Tensor((T.dynamic("N"),), T.float32)):  # type: ignore[no-untyped-def, valid-type]
    (N,) = A.shape
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] / 2.0
    return B


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often this thread read the settings and looked for the directories."""
    found: Counter[str] = Counter()
    here = threading.get_ident()

    def counted(name: str, real: Any) -> Any:
        def call(*args: Any) -> Any:
            found[name] += threading.get_ident() == here
            return real(*args)

        return call

    monkeypatch.setattr(settings, "_read", counted("settings", settings._read))
    # What resolve() asks each time, once where there are no layers.
    root = counted("directories", directory._usable)
    monkeypatch.setattr(directory, "_usable", root)
    return found


def test_a_task_made_during_a_compile_sees_later_settings(tmp_path: Path) -> None:
    """asyncio copies the context of the code that makes a task; the settings are not in it."""

    async def seen() -> bool:
        await asyncio.sleep(0)
        return settings.current().strict

    async def run() -> list[bool]:
        tasks: list[asyncio.Task[bool]] = []
        remove = tileops.on_compile(lambda event: tasks.append(asyncio.create_task(seen())))
        with tileops.option.cache_dir(tmp_path):
            halved(torch.ones(8))
        remove()
        with tileops.option.strict():
            return list(await asyncio.gather(*tasks))

    found = asyncio.run(run())
    assert found
    assert all(found)


def test_a_compile_and_a_hit_on_disk_and_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, counts: Counter[str]
) -> None:
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path))
    a = torch.arange(100.0)
    for kind in ("compiles", "disk_hits", "memory_hits"):
        before = tileops.stats()
        counts.clear()
        assert torch.equal(tripled(a), a * 3)
        assert tileops.stats()[kind] == before[kind] + 1
        assert counts == {"settings": 1, "directories": 1}, kind
        tripled.unload()
        if kind == "compiles":
            cache.store().clear_memory()
            memo._found.clear()


def test_what_the_thread_itself_overrides_counts_at_once() -> None:
    assert not settings.current().strict
    with settings.read_once():
        assert not settings.current().strict
        with tileops.option.strict(True):
            assert settings.current().strict
        assert not settings.current().strict


def test_what_the_environment_says_later_does_not_count_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with settings.read_once():
        assert not settings.current().strict
        monkeypatch.setenv("TILEOPS_STRICT", "1")
        assert not settings.current().strict
    assert settings.current().strict
