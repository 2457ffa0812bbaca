"""A cache directory, a store and clean counters for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tileops import counters, log, option
from tileops.cache import Store


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The directory of the cache, not made yet; warnings and counters start anew."""
    log._warned.clear()
    counters.stats(reset=True)
    with option.cache_dir(tmp_path / "cache"):
        yield tmp_path / "cache"
    log._warned.clear()


@pytest.fixture
def store(root: Path) -> Store:
    return Store()
