"""A fault of any file operation under the cache: the call computes, with one warning at most."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
from tests.cache import samples
from tests.cache.injected import CODES, Call, Injector, never
from tests.kit.effort import IS_NIGHTLY, effort
from tileops import compiler, log, option
from tileops.cache import Store, memo, scripts, usage
from tileops.cache import store as store_module
from tileops.jit import provider

SCRIPT = scripts.Script("f", "ab" * 32)


def _fetch(number: int) -> None:
    entry = Store().fetch(samples.key(number), lambda: samples.built(number))
    assert samples.is_right(entry.files, number)
    scripts.record(SCRIPT, entry, {"M": number})
    for thread in threading.enumerate():
        if thread.name == "tileops-evict":
            thread.join()


def _hit() -> None:
    _fetch(0)


def _miss() -> None:
    _fetch(9)


def _evict() -> None:
    with option.cache_limit(20_000):
        _fetch(9)


def _looked_up_in_memory() -> None:
    store = Store()
    for _ in range(2):
        assert samples.is_right(store.fetch(samples.key(0), lambda: samples.built(0)).files, 0)


@tileops.jit(name="injected_triple")
def triple(A):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] * 3
    return B


def _called(size: int) -> None:
    """The whole way of a first call, as a new process goes it; its op is made anew each time."""
    with mock.patch.dict(provider._states, clear=True):
        kernel = triple.compile(N=size)
        a = torch.arange(float(size))
        assert torch.equal(kernel(a), a * 3)


def _call_that_hits() -> None:
    _called(64)


def _call_that_misses() -> None:
    _called(65)


def _call_that_dumps() -> None:
    with option.debug.dump_ir():
        _called(64)


def _tuned(blocks: tuple[int, ...]) -> None:
    timer = FakeTimer({8: 3.0, 16: 2.0, 32: 1.0})
    program = tileops.autotune(configs=[{"block": b} for b in blocks], timer=timer)(fresh_const())
    a = torch.arange(100.0)
    assert torch.equal(program(a), a * 2)


def _tuning_that_is_known() -> None:
    _tuned((8, 32))


def _tuning_that_measures() -> None:
    _tuned((8, 16, 32))


SCENES: dict[str, Callable[[], None]] = {
    function.__name__[1:]: function
    for function in (
        _hit, _miss, _evict, _looked_up_in_memory, _call_that_hits, _call_that_misses,
        _call_that_dumps, _tuning_that_is_known, _tuning_that_measures,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with entries, scripts, tunings, and what killed processes left."""
    root = tmp_path_factory.mktemp("prepared") / "cache"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TILEOPS_CACHE_DIR", str(root))
        for number in range(3):
            _fetch(number)
        _call_that_hits()
        _tuning_that_is_known()
        store_module().clear_memory()
    for path in (root / ".state" / "in_use").iterdir():
        path.unlink()
    for name in ("staging/dead", "in_use/1.dead"):
        path = root / ".state" / name
        path.write_text("left")
        os.utime(path, (time.time() - 9000,) * 2)
    return root


_compiled: dict[str, object] = {}
_real_compile = compiler.compile_kernel


def _compile_once(code, target, options, folder=None):  # type: ignore[no-untyped-def]
    """The compiler, which works elsewhere here: its own files are not what is tested."""
    if folder is not None:
        (folder / "device_kernel.cpp").write_text(code.source)
    if code.source not in _compiled:
        _compiled[code.source] = _real_compile(code, target, options)
    return _compiled[code.source]


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: it is filled a thousand times."""
    shared = Path("/dev/shm")
    is_there = shared.is_dir() and os.access(shared, os.W_OK)
    path = Path(tempfile.mkdtemp(dir=shared if is_there else tmp_path))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def scene(
    prepared: Path, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Injector]]:
    """Runs a scene in a copy of the prepared cache, in a process that knows nothing."""
    root = quick_path / "cache"
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(root))
    # A lock that cannot be had is waited for, and these faults do not pass.
    monkeypatch.setenv("TILEOPS_CACHE_LOCK_SECONDS", "0.05")
    monkeypatch.setattr(scripts, "_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(usage, "_LOCK_TRIES", 3)
    monkeypatch.setattr(compiler, "compile_kernel", _compile_once)
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)

    def run(name: str, fails: Callable[[Call], bool] = never, code: int = errno.EIO) -> Injector:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(prepared, root, symlinks=True)
        for path in [root / ".state" / "staging" / "dead", *(root / "programs").iterdir()]:
            os.utime(path, (time.time() - 9000,) * 2)
        log._warned.clear()
        memo._found.clear()
        scripts._tables.clear()
        store_module().clear_memory()
        injector = Injector(root, fails, code)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with injector.installed():
                SCENES[name]()
        assert failures == [], failures
        found = [str(w.message) for w in caught if issubclass(w.category, log.TileopsWarning)]
        injector.warnings = found
        return injector

    yield run
    log._warned.clear()
    memo._found.clear()
    scripts._tables.clear()
    store_module().clear_memory()


# All six errors at each turn take minutes: with each change every third turn meets one.
_STRIDE = effort(3, 1)


def _codes(number: int) -> tuple[int, ...]:
    return CODES if IS_NIGHTLY else (CODES[number % len(CODES)],)


def _said(found: Injector) -> list[str]:
    """The warnings; not what is said of a name that is used twice, or of a dump that was asked for."""
    return [text for text in found.warnings if not text.startswith(("the op name", "dump_ir:"))]


@pytest.mark.parametrize("name", SCENES)
def test_one_fault_at_each_turn(name: str, scene: Callable[..., Injector]) -> None:
    calls = scene(name).calls
    assert len(calls) > 5
    for turn in range(len(name) % _STRIDE, len(calls), _STRIDE):
        for code in _codes(turn // _STRIDE + len(name)):
            found = scene(name, lambda call, n=turn: call.number == n, code)
            assert len(_said(found)) <= 1, (calls[turn], found.warnings)


@pytest.mark.parametrize("name", SCENES)
def test_a_fault_that_stays(name: str, scene: Callable[..., Injector]) -> None:
    """Of one function, of one folder, or of all from some turn on."""
    calls = scene(name).calls
    picks: list[tuple[object, Callable[[Call], bool]]] = []
    for function in sorted({call.name for call in calls}):
        picks.append((function, lambda call, f=function: call.name == f))
    folders = {"/".join(call.path.split("/")[:depth]) for call in calls for depth in (1, 2, 3)}
    for folder in sorted(folders):
        picks.append((folder, lambda call, f=folder: call.path.startswith(f)))
    for turn in range(0, len(calls), effort(14, 7)):
        picks.append((turn, lambda call, n=turn: call.number >= n))
    for number, (label, fails) in enumerate(picks):
        for code in _codes(number):
            found = scene(name, fails, code)
            # What cannot be found may be a damaged entry, which is another thing to say.
            said = [text for text in _said(found) if "damaged cache entry" not in text]
            assert len(said) <= 1, (label, found.warnings)


def test_every_function_is_reached(scene: Callable[..., Injector]) -> None:
    """The scenes touch what the cache does: a file operation that none of them meets is not tested."""
    names = {call.name for name in SCENES for call in scene(name).calls}
    assert {
        "open", "open()", "read", "write", "fsync", "close", "stat", "lstat", "fstat", "scandir",
        "listdir", "mkdir", "rename", "replace", "unlink", "symlink", "readlink", "utime", "flock",
        "rmdir",
    } <= names, names  # fmt: skip
    folders = {call.path.split("/")[1] for name in SCENES for call in scene(name).calls}
    assert {"programs", "scripts", ".state"} <= folders
