"""A child that is forked while another thread compiles or tunes waits for nobody that is gone."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs.samples import vector
from tileops import option
from tileops.autotuner import autotune
from tileops.cache import Built
from tileops.jit import compiling

_SECONDS = 30.0


def _doubled(A, block: int = 64):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2
    return B


class _Gate:
    """Lets the parent's thread stand still where it is, and the child pass."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        self.reached, self.leave = threading.Event(), threading.Event()

    def wait(self) -> None:
        if os.getpid() == self.parent:
            self.reached.set()
            assert self.leave.wait(_SECONDS)


def _status_of_child(gate: _Gate, call: Callable[[], torch.Tensor], expected: torch.Tensor) -> int:
    """Forks while a thread is at the gate in ``call``; 0 where the child's call is right."""
    thread = threading.Thread(target=call)
    thread.start()
    assert gate.reached.wait(_SECONDS)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if torch.equal(call(), expected) else 1)
        finally:
            os._exit(2)
    # The child waits for the file lock, which the parent's thread has and will leave.
    time.sleep(0.5)
    gate.leave.set()
    thread.join()
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


@pytest.mark.parametrize("form", ["op", "kernel"])
def test_while_a_thread_compiles(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, build = _Gate(), compiling._build

    def slow(*request: Any) -> Built:
        gate.wait()
        return build(*request)

    program = tileops.jit(_doubled, name=f"forked_{form}")
    x = vector(300)
    call = {"op": lambda: program(x), "kernel": lambda: program.compile(x)(x)}[form]
    monkeypatch.setattr(compiling, "_build", slow)
    with option.cache_dir(tmp_path / "cache"):
        assert _status_of_child(gate, call, x * 2) == 0


@pytest.mark.parametrize("reference", [None, lambda A: A * 2])
def test_while_a_thread_tunes(reference: Callable[..., object] | None, tmp_path: Path) -> None:
    gate = _Gate()

    def timer(config: dict[str, int], kernel: object, inputs: object) -> float:
        gate.wait()
        return float(config["block"])

    def checked(A: torch.Tensor) -> object:
        gate.wait()
        assert reference is not None
        return reference(A)

    tune = autotune(
        configs=[{"block": 64}, {"block": 128}],
        timer=timer,
        ref_prog=None if reference is None else checked,
    )
    program = tune(tileops.jit(_doubled, name=f"forked_tuned_{reference is None}"))
    x = vector(300)
    with option.cache_dir(tmp_path / "cache"):
        assert _status_of_child(gate, lambda: program(x), x * 2) == 0


class _Slowly:
    """Finds and makes one module, as long as the gate is closed."""

    NAME = "tileops.imported_slowly"

    def __init__(self, gate: _Gate) -> None:
        self.gate = gate

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self.NAME else None

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self.gate.wait()
        module.value = 5.0


def test_while_a_thread_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = _Slowly(_Gate())
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])

    def call() -> torch.Tensor:
        return torch.tensor(importlib.import_module(finder.NAME).value)

    try:
        assert _status_of_child(finder.gate, call, torch.tensor(5.0)) == 0
    finally:
        sys.modules.pop(finder.NAME, None)
        tileops.__dict__.pop("imported_slowly", None)
