"""``TILEOPS_LOG=cache``: a line for each look-up, with the place, the time, the key and the reason."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest
import torch

import tileops
import tileops.language as T
from tests.cache import samples
from tileops import log, option
from tileops.cache import store
from tileops.jit import provider


@tileops.jit(name="logged_double")
def double(A, block: int = 64):
    N = T.const("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2
    return B


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path):  # type: ignore[no-untyped-def]
    store().clear_memory()
    with option.cache_dir(tmp_path / "cache"), option.target("cpu"):
        yield
    store().clear_memory()


def look_up(size: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of a look-up as a process makes it that has loaded nothing."""
    caplog.clear()
    with mock.patch.dict(provider._states, clear=True), caplog.at_level("INFO", "tileops"):
        double.compile(N=size)
    return [r.message for r in caplog.records if r.message.startswith(("hit ", "miss "))]


def test_a_miss_says_why_and_hits_say_where(caplog: pytest.LogCaptureFixture) -> None:
    head = r"logged_double\S* cpu:[\w-]+"
    (line,) = look_up(100, caplog)
    first = re.fullmatch(
        rf"miss {head} \d+\.\d ms ([0-9a-f]{{12}}) \(first compile of this op\)", line
    )
    assert first, line
    (line,) = look_up(100, caplog)
    assert re.fullmatch(rf"hit {head} layer=memory \d+\.\d ms {first[1]}", line), line
    store().clear_memory()
    (line,) = look_up(100, caplog)
    assert re.fullmatch(rf"hit {head} layer=disk \d+\.\d ms {first[1]}", line), line
    with option.cache_disable():
        store().clear_memory()
        (line,) = look_up(100, caplog)
        assert line.endswith("(no cache directory)"), line


def test_a_miss_in_strict_mode(caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    with (
        option.strict(),
        caplog.at_level("INFO", "tileops"),
        pytest.raises(tileops.CompileMissError),
    ):
        double(torch.ones(77))
    assert any(r.message.startswith("miss logged_double ") for r in caplog.records)


def test_a_hit_in_a_bundle_without_a_compiler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tileops.bundle(tmp_path / "b", [(double, [{"N": 90}])])
    store().clear_memory()
    monkeypatch.setenv("TILEOPS_BUNDLE", str(tmp_path / "b"))
    with option.cache_dir(tmp_path / "empty"):
        monkeypatch.setenv("TILEOPS_CXX", "no-such-compiler")
        (line,) = look_up(90, caplog)
        assert " layer=bundle " in line
        with pytest.raises(tileops.ToolchainError):
            look_up(91, caplog)
        line = next(r.message for r in caplog.records if r.message.startswith("miss "))
        assert "ms key unknown (the compiler that TILEOPS_CXX names was not found" in line


def test_nothing_is_made_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(log, "is_wanted", lambda topic: False)
        patched.setattr(log, "emit", lambda topic, line: topic == "cache" and pytest.fail(line))
        double.compile(N=120)


SCRIPT = """
import torch, tileops
from tests.jit.test_lookup_log import double
double(torch.ones(64))
print("{}")
"""


def test_on_stderr_and_only_if_asked_for(tmp_path: Path) -> None:
    found = []
    for topics in ("", "compile", "cache", "all"):
        env = samples.environment(tmp_path / "c" / (topics or "none"), TILEOPS_LOG=topics)
        found.append(str(samples.result(samples.start(SCRIPT, env=env))["stderr"]))
    assert ["tileops: miss logged_double" in text for text in found] == [False, False, True, True]
