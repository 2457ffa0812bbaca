"""Places that a cache cannot use or trust: a real program is right there, and says so once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cache import samples

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return samples.drive("unusable_places", tmp_path_factory.mktemp("places"))


def test_a_read_only_directory_serves_hits_and_one_warning_for_a_miss(rows: dict[str, Any]) -> None:
    _is_quiet(rows["mode 0555, hit"], compiles=0)
    _warns_once(rows["mode 0555, miss"], "cache")


def test_a_path_that_is_a_file(rows: dict[str, Any]) -> None:
    _warns_once(rows["the path is a file"], "file")


def test_a_user_without_home_and_name_leaves_nothing_behind(rows: dict[str, Any]) -> None:
    _warns_once(rows["no home, unknown uid"], "no home directory")
    assert rows["left in the working directory"] == []


def test_a_full_disk(rows: dict[str, Any]) -> None:
    if "a full disk" not in rows:
        pytest.skip("mounting a tmpfs needs a privileged user")
    _warns_once(rows["a full disk"], "No space left")
    assert rows["left on the full disk"] == []


@pytest.mark.parametrize("case", ["mode 0777", "another user's"])
def test_a_directory_that_others_can_write(rows: dict[str, Any], case: str) -> None:
    if case not in rows:
        pytest.skip("giving a folder away needs root")
    _warns_once(rows[case], "TILEOPS_CACHE_TRUST_SHARED")
    _is_quiet(rows[f"{case}, allowed"], compiles=0)


def test_an_entry_that_is_a_link_is_a_miss(rows: dict[str, Any]) -> None:
    _warns_once(rows["a link"], "damaged cache entry")
    _is_quiet(rows["a link, healed"], compiles=0)


def test_planted_files_never_run_and_nothing_is_unpickled(rows: dict[str, Any]) -> None:
    _is_quiet(rows["planted"], compiles=0)
    _is_quiet(rows["planted, a miss"], compiles=1)
    assert rows["the planted code ran"] is False


def _is_quiet(row: dict[str, Any], compiles: int) -> None:
    assert row == {"right": True, "compiles": compiles, "warnings": [], "status": 0}


def _warns_once(row: dict[str, Any], words: str) -> None:
    assert (row["right"], row["compiles"], row["status"]) == (True, 1, 0), row
    assert len(row["warnings"]) == 1, row
    assert words in row["warnings"][0]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(samples.drive("odd_places", tmp_path_factory.mktemp("odd")))


@pytest.mark.parametrize("case", ["no UTF-8", "deep", "chdir", "gone"])
def test_a_directory_with_an_odd_name_or_seen_from_elsewhere_is_one_directory(
    odd: dict[str, Any], case: str
) -> None:
    first, second = odd["rows"][case]
    assert (first["right"], first["compiles"], first["warnings"]) == (True, 1, [])
    assert (second["right"], second["compiles"], second["warnings"]) == (True, 0, [])
    # A relative name means the folder in which it was first read: no second directory elsewhere.
    assert odd["found"] == {name: ["programs"] * 2 for name in ("chdir", "gone")}


@pytest.mark.parametrize("case", ["too deep", "nowhere"])
def test_a_name_that_no_directory_can_have_is_one_warning(odd: dict[str, Any], case: str) -> None:
    for row in odd["rows"][case]:
        assert (row["right"], row["compiles"], len(row["warnings"])) == (True, 1, 1)
        assert "keeping compiled programs in memory" in row["warnings"][0]
