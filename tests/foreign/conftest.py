"""The recorded driver, and a cache that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.conftest import fake as fake
from tests.runtime.conftest import fake_driver_path as fake_driver_path
from tileops import option
from tileops.op import registration


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.getbasetemp() / "foreign-cache"
    path.mkdir(exist_ok=True)
    with option.cache_dir(path):
        yield path


@pytest.fixture(autouse=True)
def unloaded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Unload what a test loaded by the recorded driver while there is one."""
    if "fake" in request.fixturenames:
        request.getfixturevalue("fake")
    yield
    if "fake" in request.fixturenames:
        for op in registration._ops:
            op.unload()
