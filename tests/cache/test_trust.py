"""Trust: a directory or an entry that others can write is code that others chose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cache import samples
from tileops.cache import Store
from tileops.cache import files as cache_files
from tileops.cache.files import Trust, UntrustedError


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
@pytest.mark.parametrize("where", ["", "programs", "scripts", ".state", ".state/staging"])
def test_a_directory_that_everybody_can_write_is_refused(root: Path, mode: int, where: str) -> None:
    assert samples.ask(root)["builds"] == 1
    (root / where).mkdir(exist_ok=True)
    (root / where).chmod(mode)
    refused = samples.ask(root)
    assert (refused["builds"], refused["right"], refused["path"]) == (1, True, None)
    assert len(refused["warnings"]) == 1  # type: ignore[arg-type]
    assert "can be written by every user" in refused["warnings"][0]  # type: ignore[index]
    assert "TILEOPS_CACHE_TRUST_SHARED" in refused["warnings"][0]  # type: ignore[index]
    allowed = samples.ask(root, TILEOPS_CACHE_TRUST_SHARED="1")
    assert (allowed["builds"], allowed["warnings"]) == (0, [])


def test_a_directory_of_another_user_is_refused(root: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("giving a folder away needs root")
    assert samples.ask(root)["builds"] == 1
    os.chown(root, 12345, 12345)
    refused = samples.ask(root)
    assert (refused["builds"], refused["path"]) == (1, None)
    assert "belongs to another user" in refused["warnings"][0]  # type: ignore[index]
    assert samples.ask(root, TILEOPS_CACHE_TRUST_SHARED="1")["builds"] == 0


@pytest.mark.parametrize("name", ["", "manifest.json", "launch0.cubin"])
def test_an_entry_that_others_can_write_is_a_miss(root: Path, name: str) -> None:
    entry = Store().fetch(samples.key(), samples.built)
    assert entry.path is not None
    path = entry.path / name
    path.chmod(path.stat().st_mode | 0o002)
    answer = samples.ask(root)
    assert (answer["builds"], answer["right"]) == (1, True)
    assert samples.ask(root)["builds"] == 0


def test_nothing_is_made_that_would_be_refused(tmp_path: Path) -> None:
    # With no umask at all, what the cache makes still cannot be written by others.
    script = "import os; os.umask(0)\n" + samples.ASK
    env = samples.environment(tmp_path / "new" / "cache")
    assert samples.result(samples.start(script, [0], env=env))["builds"] == 1
    assert samples.result(samples.start(script, [0], env=env))["builds"] == 0
    for path in (tmp_path / "new").rglob("*"):
        if not path.is_symlink():
            assert path.stat().st_mode & 0o022 == 0, path


def test_a_private_group_may_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o775)
    trust = Trust(shared=False)
    for private in (True, False):
        monkeypatch.setattr(cache_files, "_is_private_group", lambda gid, uid, p=private: p)
        if private:
            trust.require(folder, folder.stat())
        else:
            with pytest.raises(UntrustedError, match="by its group"):
                trust.require(folder, folder.stat())
