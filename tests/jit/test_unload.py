"""Unloading: kernels go, the op stays, the next call loads from the cache; safe beside running calls."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector
from tileops import option
from tileops.op.registration import Op

EVENTS = ("compiles", "loads", "launches")


@tileops.jit(name="unloaded")
def program(X, act=None, block_N: int = 64):
    N = T.const("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block_N)) as bx:
        for i in T.Parallel(block_N):
            value = X[bx * block_N + i] * 2
            Y[bx * block_N + i] = value if act is None else act(value)
    return Y


def counted(call: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    before = tileops.stats()
    result = call()
    after = tileops.stats()
    return result, {name: after[name] - before[name] for name in EVENTS}


def test_the_next_call_loads_and_compiles_nothing() -> None:
    x = vector(100)
    expected = x * 2
    handle = torch.ops.tileops.unloaded
    program(x)
    for call in (program, handle, program.op):
        program.unload()
        out, events = counted(lambda call=call: call(x))
        assert torch.equal(out, expected)
        assert events == {"compiles": 0, "loads": 1, "launches": 1}
        assert counted(lambda: program(x))[1]["loads"] == 0
    program.unload()
    program.unload()  # nothing is loaded: nothing happens
    assert torch.ops.tileops.unloaded is handle


def test_the_cache_may_be_deleted_before() -> None:
    x = vector(100)
    kernel = program.compile(x)
    for call in (program, kernel):
        call(x)
        path = kernel.cache_path
        assert path is not None
        shutil.rmtree(path.parent)
        call.unload()
        out, events = counted(lambda call=call: call(x))
        assert torch.equal(out, x * 2)
        assert events == {"compiles": 0, "loads": 1, "launches": 1}
        assert path.is_dir()


def test_bound_forms_go_too() -> None:
    x = vector(100)
    program(x, samples.relu)
    program.unload()
    out, events = counted(lambda: program(x, samples.relu))
    assert torch.equal(out, (x * 2).relu())
    assert (events["compiles"], events["loads"]) == (0, 1)


def test_kernels_of_lazy_functions() -> None:
    x = vector(64)
    kernel = samples.lazy_add(64, 16)
    for unload in (kernel.unload, samples.lazy_add.unload):
        kernel(x, x)
        unload()
        out, events = counted(lambda: kernel(x, x))
        assert torch.equal(out, x + x)
        assert (events["compiles"], events["loads"]) == (0, 1)


def test_a_compiled_region_goes_on() -> None:
    torch._dynamo.reset()
    x = vector(50)
    region = torch.compile(lambda x: program(x) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(region(x), x * 2 + 1)
    program.unload()
    assert torch.equal(region(x), x * 2 + 1)


def test_while_other_threads_call() -> None:
    """Each round unloads while calls look up, resolve and run; all of them give what they should."""
    stop = threading.Event()
    failures: list[BaseException] = []
    done = [0] * 4

    def work(number: int) -> None:
        x = vector(40 + number)
        try:
            while not stop.is_set():
                assert torch.equal(program(x), x * 2)
                done[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for n in range(4):
        program(vector(40 + n))
    compiles = tileops.stats()["compiles"]
    for thread in threads:
        thread.start()
    rounds, until = 0, time.monotonic() + 60
    while rounds < 60 or not (all(done) or failures or time.monotonic() > until):
        program.unload()
        rounds += 1
    stop.set()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures, failures[0]
    assert not any(thread.is_alive() for thread in threads)
    assert all(done)
    assert tileops.stats()["compiles"] == compiles


def test_between_the_answer_to_a_call_and_its_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call has just been given is unloaded before the call finds it."""
    x = vector(50)
    program(x)
    program.unload()
    op = program._eager.op
    assert op is not None
    answer = Op.publish_variant
    unloading: list[threading.Thread] = []

    def answer_and_unload(self: Op, static: Sequence[object]) -> int:
        number = answer(self, static)
        if self is op and not unloading:
            unloading.append(threading.Thread(target=program.unload))
            unloading[0].start()
            until = time.monotonic() + 60
            while op._numbers and time.monotonic() < until:
                time.sleep(0.001)
            assert not op._numbers
        return number

    monkeypatch.setattr(Op, "publish_variant", answer_and_unload)
    assert torch.equal(program(x), x * 2)
    unloading[0].join(timeout=60)
    assert not unloading[0].is_alive()


def test_not_from_the_op_s_own_resolver() -> None:
    @tileops.jit(name="unloaded_early")
    def early(X):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 32)) as bx:
            for i in T.Parallel(32):
                Y[bx * 32 + i] = X[bx * 32 + i] - 1
        return Y

    caught: list[Exception] = []

    def unload(*event: object) -> None:
        try:
            early.unload()
        except tileops.ArgumentError as error:
            caught.append(error)

    remove = tileops.on_compile(unload)
    try:
        x = vector(33)
        assert torch.equal(early(x), x - 1)
    finally:
        remove()
    assert len(caught) == 1
    with pytest.raises(tileops.ArgumentError, match="its own resolver"):
        raise caught[0]


def _replaced_by(path: Path, data: bytes) -> None:
    staging = path.with_name("staging")
    staging.write_bytes(data)
    staging.replace(path)


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


def _foreign(path: Path) -> None:
    program(vector(101))
    (other,) = set(path.parents[1].glob("*/kernel_lib.so")) - {path}
    _replaced_by(path, other.read_bytes())


def _library(cache: Path) -> Path:
    """Where the code for a vector of 100 elements lies, in the new cache directory ``cache``."""
    program.unload()
    program(vector(100))
    (path,) = cache.glob("programs/*/kernel_lib.so")
    return path


DAMAGES: dict[str, Callable[[Path], None]] = {
    "text": lambda path: _replaced_by(path, b"text"),
    "empty": lambda path: _replaced_by(path, b""),
    "half": lambda path: _replaced_by(path, path.read_bytes()[:-8000]),
    "another's": _foreign,
    "folder": _as_folder,
    "link": _as_link_to_nothing,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_code_is_never_taken_from_a_file_that_changed(tmp_path: Path, damage: str) -> None:
    with option.cache_dir(tmp_path / "cache"):
        DAMAGES[damage](_library(tmp_path / "cache"))
        program.unload()
        x = vector(100)
        assert torch.equal(program(x), x * 2)


def test_code_that_runs_needs_no_file(tmp_path: Path) -> None:
    with option.cache_dir(tmp_path / "cache"):
        path = _library(tmp_path / "cache")
        with path.open("r+b") as file:  # in place, as a careless copy does
            file.truncate(0)
        x = vector(100)
        assert torch.equal(program(x), x * 2)
