"""Faults of the file system: the call goes on, with at most one warning and nothing left behind."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cache import samples
from tileops.cache import Store

FUNCTIONS = (
    "open", "rename", "replace", "rmdir", "unlink", "mkdir", "fsync", "write", "read", "symlink",
    "utime", "scandir", "lstat", "stat", "fstat", "close",
)  # fmt: skip
CODES = (
    errno.EBUSY,
    errno.ESTALE,
    errno.ENOENT,
    errno.EIO,
    errno.ENOSPC,
    errno.EACCES,
    errno.EMFILE,
)


class _Faulty:
    """Makes the functions of ``os`` fail at random for paths and descriptors of the cache."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, root: Path, seed: int, share: float
    ) -> None:
        self.random = random.Random(seed)
        self.share = share
        self.root = str(root)
        self.count = 0
        for name in FUNCTIONS:
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **more: Any) -> Any:
            target = args[0] if args else None
            mine = isinstance(target, int) or self.root in os.fspath(target or "")
            if mine and self.random.random() < self.share:
                self.count += 1
                if name == "close":
                    real(*args, **more)
                raise OSError(self.random.choice(CODES), "injected", str(target))
            return real(*args, **more)

        return faulty


@pytest.mark.parametrize("share", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(12))
def test_random_faults_never_reach_the_caller(
    root: Path, monkeypatch: pytest.MonkeyPatch, seed: int, share: float
) -> None:
    for number in range(3):
        Store().fetch(samples.key(number), lambda n=number: samples.built(n))
    with monkeypatch.context() as patched, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        faulty = _Faulty(patched, root, seed, share)
        for _ in range(3):
            store = Store()
            for number in range(6):
                entry = store.fetch(samples.key(number), lambda n=number: samples.built(n))
                assert samples.is_right(entry.files, number)
    assert faulty.count > 0
    # One for the file system; ENOENT on a listed file looks like damage, once an entry.
    general = [w for w in caught if "damaged cache entry" not in str(w.message)]
    assert len(general) <= 1, [str(w.message) for w in general]
    # Afterwards everything works again and nothing wrong is believed.
    for number in range(6):
        entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n))
        assert samples.is_right(entry.files, number)


def test_faults_of_the_lock(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(*args: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(3):
            entry = Store().fetch(samples.key(number), lambda n=number: samples.built(n))
            assert samples.is_right(entry.files, number)
    assert len(caught) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB; where mounting is not allowed, a quota on the size of files."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o755)
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs needs a privileged user")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    cache = small_disk / "cache"
    for number in range(8):
        answer = samples.ask(cache, number)
        assert answer["right"]
        assert len(answer["warnings"]) <= 1  # type: ignore[arg-type]
    assert answer["path"] is None, "the disk was never full"
    assert "No space left" in answer["warnings"][0]  # type: ignore[index]
    assert list((cache / ".state" / "staging").iterdir()) == []


# Files may not grow past a limit: what a quota does, without being root.
WITH_A_QUOTA = (
    """
import resource
import filelock, tileops.cache, tests.cache.samples
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
"""
    + samples.ASK
)


def test_a_quota_on_files(root: Path) -> None:
    for _ in range(2):
        answer = samples.result(
            samples.start(WITH_A_QUOTA, [0], env=samples.environment(root, TMPDIR=str(root.parent)))
        )
        assert (answer["builds"], answer["right"], answer["path"]) == (1, True, None)
        assert len(answer["warnings"]) == 1  # type: ignore[arg-type]
        assert "File too large" in answer["warnings"][0]  # type: ignore[index]
    assert list((root / "programs").iterdir()) == []
    assert list((root / ".state" / "staging").iterdir()) == []
    assert samples.ask(root)["path"] is not None


def test_a_read_only_mount_still_hits(small_disk: Path) -> None:
    cache = small_disk / "cache"
    assert samples.ask(cache, 0)["builds"] == 1
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    hit = samples.ask(cache, 0)
    assert (hit["builds"], hit["right"], hit["warnings"]) == (0, True, [])
    miss = samples.ask(cache, 1)
    assert (miss["builds"], miss["right"], miss["path"]) == (1, True, None)
    assert len(miss["warnings"]) == 1  # type: ignore[arg-type]


# Imports first, then becomes a user who owns nothing: the interpreter itself may lie in a folder
# that this user cannot read.
AS_NOBODY = (
    """
import os, sys
import filelock, tileops.cache, tileops.counters, tests.cache.samples
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(1002700000)
    os.setuid(1002700000)
"""
    + samples.ASK
)


def test_a_folder_without_write_permission(root: Path, tmp_path: Path) -> None:
    assert samples.ask(root, 0)["builds"] == 1
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    folders = [root, *(p for p in root.rglob("*") if p.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        env = samples.environment(root)
        hit = samples.result(samples.start(AS_NOBODY, [0], env=env, cwd=tmp_path))
        miss = samples.result(samples.start(AS_NOBODY, [1], env=env, cwd=tmp_path))
    finally:
        for path in folders:
            path.chmod(0o755)
    assert (hit["builds"], hit["right"], hit["warnings"]) == (0, True, [])
    assert (miss["builds"], miss["right"], miss["path"]) == (1, True, None)
    assert len(miss["warnings"]) == 1  # type: ignore[arg-type]


def test_a_user_without_name_or_home(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("becoming an unknown user needs root")
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    env = samples.environment(None)
    for name in ("HOME", "USER", "LOGNAME"):
        env.pop(name, None)
    answer = samples.result(samples.start(AS_NOBODY, [0], env=env, cwd=work))
    assert (answer["builds"], answer["right"], answer["path"]) == (1, True, None)
    assert len(answer["warnings"]) == 1  # type: ignore[arg-type]
    assert "no home directory" in answer["warnings"][0]  # type: ignore[index]
    assert list(work.iterdir()) == []


@pytest.mark.parametrize("place", ["the directory", "its parent", "programs"])
def test_a_file_where_a_folder_should_be(root: Path, place: str) -> None:
    match place:
        case "the directory":
            root.write_text("a file")
            cache = root
        case "its parent":
            root.write_text("a file")
            cache = root / "cache"
        case _:
            root.mkdir()
            (root / "programs").write_text("a file")
            cache = root
    answer = samples.ask(cache)
    assert (answer["builds"], answer["right"], answer["path"]) == (1, True, None)
    assert len(answer["warnings"]) == 1  # type: ignore[arg-type]


def test_tilde_means_home_and_never_a_folder_of_that_name(tmp_path: Path) -> None:
    env = samples.environment(None, TILEOPS_CACHE_DIR="~/kept", HOME=str(tmp_path / "home"))
    answer = samples.result(samples.start(samples.ASK, [0], env=env, cwd=tmp_path))
    assert str(answer["path"]).startswith(str(tmp_path / "home" / "kept"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home"]


def test_the_default_directory(tmp_path: Path) -> None:
    env = samples.environment(None, XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert str(samples.result(samples.start(samples.ASK, [0], env=env))["path"]).startswith(
        str(tmp_path / "xdg" / "tileops" / "programs")
    )
    env = samples.environment(None, HOME=str(tmp_path / "home"), XDG_CACHE_HOME="relative")
    answer = samples.result(samples.start(samples.ASK, [0], env=env, cwd=tmp_path))
    assert str(answer["path"]).startswith(str(tmp_path / "home" / ".cache" / "tileops"))
    assert not (tmp_path / "relative").exists()
