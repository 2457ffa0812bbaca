"""One change at a time to a program, its options, its target or its tools: a new key, a new result."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

from tileops import counters
from tileops.cache import store
from tileops.codegen.kernel_code import Specialization
from tileops.jit import compiling, provider, tool_versions
from tileops.target import Target

PROGRAM = """
import tileops
import tileops.language as T

VALUE = 123
dtype = "float32"


def callee(x):
    return x + VALUE


@T.macro
def bump(x):
    return x * 1


@tileops.jit(out_idx=[-1])
def changed(N, block=64):
    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = callee(A[bx * block + i]) * 1

    return main
"""
# What is changed in the text, and the result for an input of zeros.
EDITS: dict[str, tuple[str, str, float]] = {
    "a global": ("VALUE = 123", "VALUE = 1234", 1234.0),
    "the body of a function that it calls": ("return x + VALUE", "return x + 2 * VALUE", 246.0),
    "its own body": ("bx * block + i]) * 1", "bx * block + i]) * 3", 369.0),
    "the threads, and so the warps": ("threads=64", "threads=128", 123.0),
    "the dtype": ('dtype = "float32"', 'dtype = "float64"', 123.0),
}


def _module(folder: Path, text: str) -> ModuleType:
    # One path and one name for both texts: neither may stand for the content. Python's own byte code
    # would: it goes by the second of the change and the length.
    path = folder / "changed_program.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("changed_program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, "dont_write_bytecode", True):
        spec.loader.exec_module(module)
    return module


def _result(module: ModuleType, size: int) -> tuple[str, float, int]:
    before = counters.stats()["compiles"]
    kernel = module.changed(size)
    out = kernel(torch.zeros(size, dtype=getattr(torch, module.dtype)))
    compiles = counters.stats()["compiles"] - before  # type: ignore[operator]
    return kernel.artifact.hash, float(out.unique()), compiles


@pytest.mark.parametrize("name", EDITS)
def test_a_change_of_the_program(root: Path, tmp_path: Path, name: str) -> None:
    old, new, expected = EDITS[name]
    text = PROGRAM.replace(old, new)
    assert text != PROGRAM
    size = 100 + list(EDITS).index(name)  # what other tests compiled stays in memory
    first = _result(_module(tmp_path, PROGRAM), size)
    assert first[1:] == (123.0, 1)
    assert _result(_module(tmp_path, PROGRAM), size) == (first[0], 123.0, 0)
    second = _result(_module(tmp_path, text), size)
    assert second[0] != first[0]
    assert second[1:] == (expected, 1)
    assert _result(_module(tmp_path, PROGRAM), size) == (first[0], 123.0, 0)


def test_a_global_changed_in_place(root: Path, tmp_path: Path) -> None:
    """The very function object, traced again for another size after its global changed."""
    module = _module(tmp_path, PROGRAM)
    assert float(module.changed(160)(torch.zeros(160)).unique()) == 123.0
    module.VALUE = 1234
    assert float(module.changed(161)(torch.zeros(161)).unique()) == 1234.0


TOOLS = {
    "the assembler": (Target("cuda", "sm_90a"), "ptxas"),
    "the compiler of the GPU": (Target("cuda", "sm_90a"), "triton"),
    "the compiler of the CPU": (Target("cpu", "x86-64-v3"), "g++"),
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_change_of_the_tools(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, tool = TOOLS[name]
    program = _module(tmp_path, PROGRAM).changed.get_tir(100)
    asked = compiling.Request(program, target, Specialization(True), "changed", "")
    before, real = compiling.key_of(asked), tool_versions.of(target)
    assert compiling.key_of(asked) == before
    monkeypatch.setattr(tool_versions, "of", lambda target: {**real, tool: real[tool] + ".1"})
    assert compiling.key_of(asked).hash() != before.hash()


def test_a_change_of_the_architecture(tmp_path: Path) -> None:
    program = _module(tmp_path, PROGRAM).changed.get_tir(100)
    targets = [Target("cuda", arch) for arch in ("sm_80", "sm_90", "sm_90a")]
    keys = [
        compiling.key_of(compiling.Request(program, target, Specialization(True), "changed", ""))
        for target in targets
    ]
    assert len({key.hash() for key in keys}) == 3


def test_another_compiler_in_the_same_place_compiles_anew(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    monkeypatch.setenv("TILEOPS_CXX", str(compiler))
    found = []
    for text in ("# one\n", "# one\n", "# two, longer\n"):
        if not compiler.exists() or text not in compiler.read_text():
            compiler.write_text(f'#!/bin/sh\n{text}exec g++ "$@"\n')
            compiler.chmod(0o755)
        store().clear_memory()
        with mock.patch.dict(provider._states, clear=True):  # what a new process knows
            found.append(_result(_module(tmp_path, PROGRAM), 150))
    assert [(value, compiles) for _, value, compiles in found] == [
        (123.0, 1),
        (123.0, 0),
        (123.0, 1),
    ]
    assert found[0][0] == found[1][0] != found[2][0]
