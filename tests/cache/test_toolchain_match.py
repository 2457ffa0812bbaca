"""Programs that another compiler made: where they serve, what the log says, strict mode without a compiler."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tileops import counters, option
from tileops.cache.store import store
from tileops.errors import ArgumentError, CompileMissError, ToolchainError
from tileops.settings import current


@tileops.jit(name="match_relu")
def relu(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            B[bx * 256 + i] = T.max(A[bx * 256 + i], 0.0)
    return B


def forget() -> None:
    """As in a new process."""
    relu.unload()
    store().clear_memory()
    counters.stats(reset=True)


def call() -> None:
    forget()
    x = torch.randn(1000)
    assert torch.equal(relu(x), torch.relu(x))


def for_a_gpu() -> None:
    forget()
    tileops.warmup([(relu, torch.randn(1000))], target="cuda:sm_80")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has the program for the CPU and for a GPU."""
    root = tmp_path_factory.mktemp("match") / "cache"
    with option.cache_dir(root):
        call()
        for_a_gpu()
    return root


@pytest.fixture
def root(filled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    """A copy of the filled cache, in use; the log of look-ups is kept."""
    caplog.set_level(logging.INFO, "tileops")
    with option.cache_dir(shutil.copytree(filled, tmp_path / "cache", symlinks=True)):
        yield tmp_path / "cache"


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither g++ nor Triton."""
    monkeypatch.setenv("PATH", "/nonexistent")
    find_spec, distribution = importlib.util.find_spec, importlib.metadata.distribution

    def spec(name: str, *more: Any) -> Any:
        return None if name == "triton" else find_spec(name, *more)

    def installed(name: str) -> importlib.metadata.Distribution:
        if "triton" in name:
            raise importlib.metadata.PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(importlib.util, "find_spec", spec)
    monkeypatch.setattr(importlib.metadata, "distribution", installed)


@pytest.fixture
def other_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another compiler than the one that filled the cache, as keys see it."""
    monkeypatch.setenv("TILEOPS_CXX", "g++ -DOTHER")


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        (call, r"cpu:\S+ layer=alias \S+ ms [0-9a-f]{12} \(made by g\+\+ [0-9.]+ [0-9a-f]{8}\)"),
        (for_a_gpu, r"cuda:sm_80 layer=alias .* \(made by ptxas .*, triton 3\S+ [0-9a-f]{8}\)"),
    ],
)
@pytest.mark.usefixtures("root", "no_tools")
def test_a_node_without_a_compiler_finds_what_another_compiled(
    ask: Callable[[], None], found: str, caplog: pytest.LogCaptureFixture
) -> None:
    with option.strict():
        ask()
    stats = counters.stats()
    assert (stats["compiles"], stats["misses"]) == (0, 0)
    assert re.search(f"hit match_relu {found}", caplog.text), caplog.text


@pytest.mark.parametrize(
    ("ask", "target", "lack"),
    [
        (call, "cpu", "g++ was not found"),
        (for_a_gpu, "cuda:sm_80", "compiling for a GPU needs Triton 3.6 to 3.9"),
    ],
)
@pytest.mark.usefixtures("no_tools")
def test_a_strict_miss_without_the_tool_names_op_target_and_identity(
    ask: Callable[[], None], target: str, lack: str, tmp_path: Path
) -> None:
    with option.cache_dir(tmp_path / "empty"):
        with option.strict(), pytest.raises(CompileMissError) as missed:
            ask()
        # Not strict, it is the error that says what to install.
        with pytest.raises(ToolchainError, match=re.escape(lack)):
            ask()
    assert re.match(
        rf"op match_relu needs a compile for {target}\S* \(.*; identity [0-9a-f]{{12}}; "
        rf"key unknown: {re.escape(lack)}",
        str(missed.value),
    ), missed.value


@pytest.mark.usefixtures("root", "no_tools")
def test_exact_takes_no_alias() -> None:
    strict = pytest.raises(CompileMissError, match="key unknown")
    with option.strict(), option.toolchain_match("exact"), strict:
        call()
    with option.toolchain_match("exact"), pytest.raises(ToolchainError):
        call()


@pytest.mark.usefixtures("no_tools")
def test_without_its_alias_an_entry_is_found_by_its_key_alone(root: Path) -> None:
    shutil.rmtree(root / "aliases")
    with option.strict(), pytest.raises(CompileMissError, match="key unknown"):
        call()


@pytest.mark.usefixtures("root", "other_compiler")
def test_where_the_compiler_is_there_its_own_code_is_made_unless_any_will_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with option.strict():
        for match in ("missing", "exact"):
            with option.toolchain_match(match), pytest.raises(
                CompileMissError, match=r"; key [0-9a-f]{12}; identity [0-9a-f]{12}\)"
            ):  # fmt: skip
                call()
        with option.toolchain_match("any"):
            call()
    assert "layer=alias" in caplog.text
    call()
    assert counters.stats()["compiles"] == 1
    assert "changed: toolchain" in caplog.text
    caplog.clear()
    with option.strict(), option.toolchain_match("any"):
        call()
    assert "layer=disk" in caplog.text, "the key comes first"


def test_the_option() -> None:
    assert current().toolchain_match == "missing"
    with option.toolchain_match("any"):
        assert current().toolchain_match == "any"
    for bad in ("some", 5):
        with pytest.raises(ArgumentError, match="expected one of exact, missing, any"):
            option.toolchain_match(bad)  # type: ignore[arg-type]


def test_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEOPS_TOOLCHAIN_MATCH", "exact")
    assert current().toolchain_match == "exact"
    monkeypatch.setenv("TILEOPS_TOOLCHAIN_MATCH", "most")
    with pytest.raises(ArgumentError, match=r"TILEOPS_TOOLCHAIN_MATCH='most': expected one of"):
        current()
