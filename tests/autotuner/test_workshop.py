"""A whole tuning on the CPU: real programs, workers, children, several devices and ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.autotuner.finding import EXACT, Found, find_fastest, find_in, request_of
from tests.autotuner.risky import RISKS, requests, risky
from tileops.autotuner import workshop
from tileops.autotuner.param import TuningOptions
from tileops.autotuner.workshop import Workshop

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
# A good config must not time out on a busy machine, where loading one takes a second.
OPTIONS = TuningOptions(warmup=2, timeout=6.0, rep=10, ref_prog=lambda a: a * 2, **EXACT)


def find(x: torch.Tensor, names: Sequence[str] = RISKS, **more: Any) -> Found:
    return find_fastest(requests(x, names), [x], OPTIONS, workers=2, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture
def cache(folder: Path) -> Iterator[Path]:
    with tileops.option.cache_dir(folder):
        yield folder


def test_the_good_config_wins_and_every_reason_is_recorded(cache: Path) -> None:
    x = torch.randn(20_000)
    heard: list[tuple[str, str]] = []
    found = find(x, progress=lambda name, m: heard.append((name, m.status)))
    assert found.status == {
        "good": "ok", "loop": "timeout", "wrong": "wrong_result", "flags": "compile_error",
        "slow": "ok",
    }  # fmt: skip
    assert found.ranking == ["good", "slow"]
    assert all(m.reason for m in found.measured.values() if m.status != "ok")
    assert {name for name, _ in heard} == set(RISKS)
    # What the winner compiled to is what the caller's program finds in the cache.
    tileops.stats(reset=True)
    assert torch.equal(risky(x), x * 2)
    assert tileops.stats()["compiles"] == 0


def test_what_cannot_move_is_measured_in_this_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(workshop, "ChildBench")
    x = torch.randn(20_000)
    names = ("good", "slow", "wrong")
    found = find(x, names, isolated=False)
    assert {m.where for m in found.measured.values()} == {"cpu"}
    assert found.ranking == ["good", "slow"]
    assert found.status["wrong"] == "wrong_result"


def test_several_devices_share_the_configs_and_the_first_decides(cache: Path) -> None:
    x = torch.randn(20_000)
    found = find(x, ("slow", "good", "wrong", "slow.2"), devices=(CPU, torch.device("cpu:0")))
    assert found.ranking[0] == "good"
    assert sorted(found.ranking) == ["good", "slow", "slow.2"]
    where = {m.where for m in found.measured.values() if m.status == "ok"}
    assert where <= {"cpu", "cpu:0"}
    assert found.measured["good"].where == "cpu"
    assert found.measured["good"].latency is not None


def test_ranks_find_one_answer_with_real_programs(cache: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.autotuner.risky", str(tmp_path / "store"), str(cache)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen([*command, str(n)], cwd=ROOT, env=environment, stdout=subprocess.PIPE)
        for n in range(2)
    ]
    lines = [process.communicate(timeout=240)[0].splitlines()[-1] for process in ranks]
    assert lines[0] == lines[1]
    answer = json.loads(lines[0])
    assert answer["ranking"] == ["good", "slow"], answer
    status = ("ok", "timeout", "wrong_result", "compile_error", "ok")
    assert answer["status"] == dict(zip(RISKS, status, strict=True))


def test_what_the_cache_holds_is_not_compiled_again(cache: Path) -> None:
    x = torch.randn(20_000)
    risky(x, how="good")
    risky(x, how="slow")
    tileops.stats(reset=True)
    found = find(x, ("good", "slow"))
    assert tileops.stats()["compiles"] == 0
    assert found.ranking == ["good", "slow"]


def test_what_only_this_process_holds_is_compiled_again() -> None:
    """A program in memory has no file that another process could load."""
    x = torch.randn(20_000)
    with tileops.option.cache_disable():
        risky(x, how="good", block_N=64)
        program = risky.get_tir(x, how="good", block_N=64)
        found = find_fastest({"good": request_of(program)}, [x], OPTIONS, workers=1)
    assert found.status == {"good": "ok"}, found.reasons


def test_one_workshop_serves_several_rungs(cache: Path) -> None:
    x = torch.randn(20_000)
    with Workshop(requests(x), [x], OPTIONS, [CPU], workers=2) as shop:
        first = find_in(shop, ("slow", "wrong"))
        (bench,) = shop.benches().values()
        pid = bench._children[0].pid  # type: ignore[attr-defined]
        shop.effort = 0.5
        second = find_in(shop, ("good", "slow"))
        assert bench._children[0].pid == pid  # type: ignore[attr-defined]
    assert first.status == {"slow": "ok", "wrong": "wrong_result"}
    assert second.ranking == ["good", "slow"]
