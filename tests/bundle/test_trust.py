"""Who may have written a bundle: this user and root, for Python, C and the bundles of the settings."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tileops
from tests.programs import samples
from tileops import option
from tileops.errors import ArgumentError
from tileops.op import bundle_paths

Run = Callable[..., str]
IS_ROOT = os.geteuid() == 0
OTHER = 12345  # a user that is not there

PARTS = {
    "the folder": ".",
    "the index": "bundle.json",
    "ops": "ops",
    "an op's folder": "ops/sample_axpy",
    "op.json": "ops/sample_axpy/op.json",
    "programs": "programs",
    "a program's folder": "programs/*",
    "a manifest": "programs/*/manifest.json",
    "a library": "programs/*/*.so",
}
CHANGES = {
    "others": "can be written by every user",
    "group": r"can be written by its group \(gid 12345\)",
    "user": r"belongs to another user \(uid 12345\)",
}


def worsened(bundle: Path, part: str, how: str) -> Path:
    path = next(bundle.glob(part)) if part != "." else bundle
    if how == "others":
        path.chmod(path.stat().st_mode | 0o002)
    elif how == "group":
        os.chown(path, -1, OTHER)
        path.chmod(path.stat().st_mode | 0o020)
    else:
        os.chown(path, OTHER, -1)
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return tileops.bundle(tmp_path / "b", samples.axpy, "cpu")


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(Path(tileops.__file__).parent / "libtileops.so"))
    found.tileops_last_error.restype = ctypes.c_char_p
    return found


_count = 0


def fresh_namespace() -> str:
    global _count
    _count += 1
    return f"trusting_{_count}"


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("part", PARTS)
def test_what_someone_else_could_have_written(
    bundle: Path, library: ctypes.CDLL, part: str, how: str
) -> None:
    if how != "others" and not IS_ROOT:
        pytest.skip("only root can give files away")
    path = worsened(bundle, PARTS[part], how)
    with pytest.raises(ArgumentError, match=CHANGES[how]) as caught:
        tileops.load_bundle(bundle, namespace=fresh_namespace())
    assert str(caught.value).startswith(f"{path} ".replace("/. ", " "))
    assert 'trust="shared" or TILEOPS_CACHE_TRUST_SHARED=1 allows it' in str(caught.value)
    for options in (b"{}", b'{"trust": "user"}'):
        assert library.tileops_load_bundle_ex(str(bundle).encode(), options) == -1
        assert str(path) in library.tileops_last_error().decode()
    assert tileops.load_bundle(bundle, namespace=fresh_namespace(), trust="shared")
    shared = f'{{"trust": "shared", "namespace": "{fresh_namespace()}"}}'.encode()
    assert library.tileops_load_bundle_ex(str(bundle).encode(), shared) == 1


def test_the_setting_of_the_cache_counts(bundle: Path, run_python: Run) -> None:
    worsened(bundle, "ops", "others")
    text = (
        "import ctypes, sys, tileops, torch\n"
        "from pathlib import Path\n"
        "from tileops import runtime; runtime.counters()\n"
        "library = ctypes.CDLL(str(Path(tileops.__file__).parent / 'libtileops.so'))\n"
        "print(library.tileops_load_bundle(sys.argv[1].encode()))\n"
        "try: print(len(tileops.load_bundle(sys.argv[1])))\n"
        "except tileops.ArgumentError: print('refused')\n"
        "try: print(len(tileops.load_bundle(sys.argv[1], trust='user', namespace='strict')))\n"
        "except tileops.ArgumentError: print('refused')\n"
    )
    assert run_python(text, bundle).split() == ["-1", "refused", "refused"]
    for yes in ("1", "True"):
        shared = run_python(text, bundle, TILEOPS_CACHE_TRUST_SHARED=yes)
        assert shared.split() == ["1", "1", "refused"]


# Programs with source read the programs alone.
@pytest.mark.parametrize("part", [part for part in PARTS if not PARTS[part].startswith("ops")])
def test_bundles_of_the_settings(bundle: Path, part: str, tmp_path: Path, run_python: Run) -> None:
    path = worsened(bundle, PARTS[part], "others")
    text = (
        "import torch, tileops\n"
        "from tests.programs import samples\n"
        "x = torch.randn(100)\n"
        "try: print(torch.equal(samples.axpy(x, x, 1.0), x + x), tileops.stats()['compiles'])\n"
        "except tileops.ArgumentError as error: print(error)\n"
    )
    environment = {"TILEOPS_BUNDLE": str(bundle), "TILEOPS_CACHE_DIR": str(tmp_path / "cache")}
    out = run_python(text, **environment)
    assert out.startswith(f"bundle: {path} can be written by every user")
    assert run_python(text, TILEOPS_CACHE_TRUST_SHARED="1", **environment) == "True 0"


def test_a_bundle_that_was_loaded_as_shared_serves_as_that(
    bundle: Path, tmp_path: Path, run_python: Run
) -> None:
    worsened(bundle, "programs", "others")
    text = (
        "import sys, torch, tileops\n"
        "from tests.programs import samples\n"
        "tileops.load_bundle(sys.argv[1], trust='shared')\n"
        "x = torch.randn(100)\n"
        "print(torch.equal(samples.axpy(x, x, 1.0), x + x), tileops.stats()['compiles'])\n"
    )
    assert run_python(text, bundle, TILEOPS_CACHE_DIR=str(tmp_path / "cache")) == "True 0"


def test_the_same_rule_in_both_languages(tmp_path: Path, bundle: Path) -> None:
    """Owner, group and mode of one file, as Python's cache and the C++ reader judge them."""
    from tileops.cache.files import Trust, UntrustedError

    trust, index = Trust(shared=False), bundle / "bundle.json"
    for mode in (0o400, 0o444, 0o600, 0o640, 0o644, 0o660, 0o664, 0o666, 0o646, 0o606, 0o755):
        for group in (os.getgid(), 0, OTHER) if IS_ROOT else (os.getgid(),):
            index.chmod(mode)
            if IS_ROOT:
                os.chown(index, -1, group)
            try:
                trust.require(index, index.stat())
                expected = True
            except UntrustedError:
                expected = False
            try:
                tileops.load_bundle(bundle, namespace=fresh_namespace())
                taken = True
            except ArgumentError:
                taken = False
            assert taken == expected, (oct(mode), group)


def test_what_trust_takes(bundle: Path) -> None:
    with pytest.raises(ArgumentError, match='trust is "user" or "shared", got \'all\''):
        tileops.load_bundle(bundle, trust="all")  # type: ignore[arg-type]
    shutil.rmtree(bundle)
    with pytest.raises(ArgumentError, match=r"bundle\.json: No such file"):
        tileops.load_bundle(bundle)


def test_the_settings_come_first() -> None:
    with option.Override(bundle=("a", "b"), cache_trust_shared=True):
        assert bundle_paths.serving()[:2] == (("a", True), ("b", True))
