"""The commands: record, prewarm and ``remote``, on a folder and on real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache import samples
from tests.fleet import blobs
from tileops import option
from tileops.cache import Store
from tileops.cache.remote.opening import open_store
from tileops.cache.remote.stores import ALIASES, COMMAND_BOUNDS, ENTRIES, LEASES
from tileops.cli.main import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The exit status of a command and what it printed."""

    def command(*words: object) -> tuple[int, str]:
        status = main([str(word) for word in words])
        return status, "".join(capsys.readouterr())

    return command


@pytest.fixture
def share(tmp_path: Path) -> Path:
    folder = tmp_path / "share"
    folder.mkdir()
    return folder


def fill(folder: Path, count: int = 3) -> None:
    with option.cache_dir(folder):
        for number in range(count):
            Store().fetch(samples.key(number), lambda n=number: samples.built(n))


def test_entries_go_from_one_machine_to_another(
    url: str, keys_file: Path, tmp_path: Path, run: Run
) -> None:
    named = ("--remote", url, "--keys", keys_file)
    fill(tmp_path / "first")
    with option.cache_dir(tmp_path / "first"):
        status, said = run("remote", "push", *named)
        assert (status, said.split(" ")[0]) == (0, "3")
        assert run("remote", "push", *named)[1].startswith("0 written")
        prefix = samples.key(1).hash()[:10]
        assert run("remote", "push", prefix, *named)[1].startswith("0 written")
    status, said = run("remote", "ls", "--json", *named)
    assert {row["hash"] for row in json.loads(said)} == {samples.key(n).hash() for n in range(3)}
    assert run("remote", "verify", *named) == (0, "6 objects, 0 not right, 0 removed\n")
    with option.cache_dir(tmp_path / "second"):
        assert run("remote", "pull", prefix, *named) == (0, "1 entries\n")
        assert Store().get(samples.key(1)).files == blobs.entry(1).files  # type: ignore[union-attr]
        assert run("remote", "pull", *named) == (0, "3 entries\n")
        assert Store().get(samples.key(2)).files == blobs.entry(2).files  # type: ignore[union-attr]


def test_what_is_not_right_is_named_removed_and_never_pulled(
    share: Path, keys_file: Path, tmp_path: Path, run: Run
) -> None:
    named = ("--remote", f"file://{share}", "--keys", keys_file)
    fill(tmp_path / "first")
    with option.cache_dir(tmp_path / "first"):
        run("remote", "push", *named)
    store = open_store(f"file://{share}")
    names = [samples.key(n).hash() for n in range(3)]
    store.put(ENTRIES + names[0], blobs.blob(0)[:-1])
    other = blobs.keys.parse({"keys": [{**blobs.HMAC_FILE["keys"][0], "kid": "mallory"}]})
    store.put(ENTRIES + names[1], blobs.blob(1, other))
    store.delete(ENTRIES + names[2])
    status, said = run("remote", "verify", *named)
    assert status == 1
    for text in (
        f"{ENTRIES}{names[0]}: ",
        "the key mallory is unknown",
        f"leads to {names[2][:12]}, which is not there",
        "3 not right",
    ):
        assert text in said
    with option.cache_dir(tmp_path / "second"):
        status, said = run("remote", "pull", *named)
        assert status == 1
        assert said.count("refused: ") == 2
        assert "0 entries" in said
    assert run("remote", "verify", "--repair", *named)[0] == 0
    left = {item.name for prefix in (ENTRIES, ALIASES) for item in store.items(prefix)}
    assert not left & {ENTRIES + names[0], ENTRIES + names[1]}


def test_prune_removes_what_is_old_or_too_much(
    share: Path, keys_file: Path, tmp_path: Path, run: Run
) -> None:
    named = ("--remote", f"file://{share}", "--keys", keys_file, "--json")
    fill(tmp_path / "first")
    with option.cache_dir(tmp_path / "first"):
        run("remote", "push", *named[:-1])
    paths = [share / ENTRIES / samples.key(n).hash() for n in range(3)]
    for age, path in enumerate(paths):
        os.utime(path, (time.time() - age * 10 * 86400,) * 2)
    (share / LEASES).mkdir()
    (share / LEASES / "old").write_bytes(b"")
    os.utime(share / LEASES / "old", (0, 0))
    removed = json.loads(run("remote", "prune", "--days", 15, *named)[1])["removed"]
    assert ENTRIES + paths[2].name in removed
    assert f"{LEASES}old" in removed
    assert len(removed) == 3  # and the pointer
    limit = paths[0].stat().st_size + 10
    assert len(json.loads(run("remote", "prune", "--limit", limit, *named)[1])["removed"]) == 2
    assert [path.exists() for path in paths] == [True, False, False]
    assert run("remote", "prune", "--limit", "much", *named)[0] == 2


def test_the_doctor_tries_everything(
    url: str, keys_file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEOPS_REMOTE_MODE", "readwrite")
    status, said = run("remote", "doctor", "--remote", url, "--keys", keys_file, "--json")
    checks = {check["name"]: check["says"] for check in json.loads(said)}
    assert status == 0, said
    assert checks["keys"] == "team"
    assert checks["writing"] == "creates once, reads back, removes"
    assert checks["signing"] == "with team (hmac-sha256)"
    assert list(open_store(url, COMMAND_BOUNDS).items(LEASES)) == []


def test_the_doctor_says_what_is_wrong(keys_file: Path, tmp_path: Path, run: Run) -> None:
    status, said = run(
        "remote", "doctor", "--remote", "redis://127.0.0.1:1", "--keys", tmp_path / "none"
    )
    assert status == 1
    assert "PROBLEM  keys: the keys file " in said
    assert "PROBLEM  answer: " in said or "PROBLEM  client: " in said
    blobs.keys_file(tmp_path, {"keys": [{**blobs.HMAC_FILE["keys"][0], "not_after": "2020-01-01"}]})
    status, said = run("remote", "doctor", "--remote", f"file://{tmp_path}", "--keys", keys_file)
    assert status == 1
    assert "PROBLEM  keys: every key in the file has expired or is revoked" in said


def test_keys_are_made_for_those_who_sign_and_for_all_others(
    tmp_path: Path, share: Path, run: Run
) -> None:
    private, public = tmp_path / "sign.json", tmp_path / "verify.json"
    words = ("remote", "keygen", private, "--kid", "ci", "--public", public)
    assert run(*words, "--not-after", "2099-01-01")[0] == 0
    assert private.stat().st_mode & 0o777 == 0o600
    assert "private" not in public.read_text()
    assert run(*words)[0] == 2  # it never replaces a key
    fill(tmp_path / "first", 1)
    with option.cache_dir(tmp_path / "first"):
        assert run("remote", "push", "--remote", f"file://{share}", "--keys", private)[0] == 0
        status, said = run("remote", "push", "--remote", f"file://{share}", "--keys", public)
        assert status == 2
        assert "name the key that signs" in said
    assert run("remote", "verify", "--remote", f"file://{share}", "--keys", public)[0] == 0
    status, said = run(
        "remote", "keygen", tmp_path / "h", "--kid", "x", "--alg", "hmac-sha256", "--public", public
    )
    assert status == 2
    assert "has no public half" in said


@pytest.mark.parametrize("words", [["ls"], ["doctor"], ["push"], ["pull"]])
def test_a_remote_must_be_named(words: list[str], run: Run) -> None:
    status, said = run("remote", *words)
    assert status == 2
    assert "name a remote: --remote URL, or TILEOPS_REMOTE" in said


PROGRAM = """
import torch, tileops
import tileops.language as T

@tileops.jit
def tripled(A):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] * 3
    return B

a = torch.arange(100.0)
assert torch.equal(tripled(a), a * 3)
print("compiles", tileops.stats()["compiles"])
"""


def test_what_a_run_needed_is_compiled_ahead_for_all(
    tmp_path: Path, share: Path, keys_file: Path, run: Run
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    lock, first = tmp_path / "tileops.lock", tmp_path / "first"

    def start(*more: object, cache: Path, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, more)], cwd=tmp_path, text=True, capture_output=True,
            env=samples.environment(cache, TILEOPS_REMOTE_TIMEOUT_SECONDS="30", **env), check=False,
        )  # fmt: skip

    for _ in range(2):  # a second run adds nothing
        done = start("-m", "tileops", "record", lock, sys.executable, "program.py", cache=first)
        assert done.returncode == 0, done.stderr
        assert "1 programs in" in done.stdout
    named = ("--remote", f"file://{share}", "--keys", keys_file)
    with option.cache_dir(tmp_path / "builder"):
        status, said = run(
            "prewarm", lock, "--targets", "cpu,cpu:x86-64-v2", "--workers", 1, *named
        )
    assert status == 0, said
    assert "1 recorded, 2 compiled for cpu:" in said
    assert "2 written to file://" in said
    # A machine that may not compile runs it.
    remote = {
        "TILEOPS_REMOTE": f"file://{share}",
        "TILEOPS_REMOTE_KEYS": str(keys_file),
        "TILEOPS_STRICT": "1",
    }
    done = start("program.py", cache=tmp_path / "second", **remote)
    assert done.stdout == "compiles 0\n", done.stderr
    # So does one without a network, from a folder that was filled before.
    pulled = start(
        "-m", "tileops", "remote", "pull", "--bundle", "ahead", cache=tmp_path / "third", **remote
    )
    assert pulled.stdout == "2 entries in ahead\n", pulled.stderr
    for variable in ("TILEOPS_BUNDLE", "TILEOPS_CACHE_PATH"):
        done = start(
            "program.py",
            cache=tmp_path / variable,
            TILEOPS_STRICT="1",
            **{variable: str(tmp_path / "ahead")},
        )
        assert done.stdout == "compiles 0\n", (variable, done.stderr)


def test_what_cannot_be_prewarmed_is_named(tmp_path: Path, run: Run) -> None:
    (tmp_path / "lock").write_text("{}\n{}\n")
    status, said = run("prewarm", tmp_path / "lock")
    assert status == 2
    assert "lock:1 is not a recorded program" in said
    assert run("record", tmp_path / "lock")[0] == 2
