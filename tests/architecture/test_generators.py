"""The digest in every cache key covers all that decides which code comes out of a program."""

from __future__ import annotations

import pytest

from tests.architecture.imports import PACKAGE, all_imports, module_name, package_files
from tileops.cache import sources

# Modules that generators use and that decide nothing of their results, with the reason.
INDIFFERENT = {
    "tileops.errors": "what people read",
    "tileops.forks": "locks",
    "tileops.location": "lines are in the program, and so in the key",
    "tileops.log": "what people read",
    "tileops.settings": "a setting that decides something is a field of the key",
}


def hashed() -> set[str]:
    """The modules whose sources are in the digest."""
    inside = [PACKAGE / name for name in sources.GENERATORS]
    return {
        module_name(path)
        for path in package_files()
        if any(path == place or place in path.parents for place in inside)
    }


def missing(known: set[str]) -> set[str]:
    """The modules that those of ``known`` import, and that are neither there nor indifferent."""
    modules = {module_name(path) for path in package_files()} - {"tileops"}
    used = {f.target for f in all_imports() if f.module in known and not f.typing_only}
    return (used & modules) - known - INDIFFERENT.keys()


def test_the_digest_covers_what_the_generators_use() -> None:
    assert not missing(hashed())


@pytest.mark.parametrize("module", ["tileops.target", "tileops.dtypes", "tileops.ir.fold"])
def test_the_test_sees_a_module_that_is_left_out(module: str) -> None:
    assert missing(hashed() - {module}) == {module}


def test_every_named_generator_is_there_and_each_exemption_is_used() -> None:
    assert all((PACKAGE / name).exists() for name in sources.GENERATORS)
    known = hashed()
    used = {f.target for f in all_imports() if f.module in known}
    assert used >= INDIFFERENT.keys()
