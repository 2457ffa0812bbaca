"""The recorded driver, and a cache that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.conftest import fake as fake
from tests.runtime.conftest import fake_driver_path as fake_driver_path
from tileops import option


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.getbasetemp() / "foreign-cache"
    path.mkdir(exist_ok=True)
    with option.cache_dir(path):
        yield path
