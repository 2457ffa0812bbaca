"""A whole tuning on the CPU: real programs, workers, children, several devices and ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tileops
from tests.autotuner.risky import RISKS, jobs, risky
from tileops.autotuner import workshop
from tileops.autotuner.campaign import Findings, Outcome, Setting, find_fastest, workshop_for
from tileops.autotuner.checking import Reference
from tileops.autotuner.measuring import Measured, Plan
from tileops.autotuner.preparing import prepare
from tileops.autotuner.rounds import Rules
from tileops.target import parse_target

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
# A good config must not time out on a busy machine, where loading one takes a second.
PLAN = Plan(warmup=2, timeout_s=6.0, rules=Rules(rep=10))


def setting(x: torch.Tensor, folder: Path, **more: object) -> Setting:
    reference = Reference(lambda a: a * 2, rtol=0.0, atol=0.0, max_mismatched_ratio=0.0)
    return Setting((CPU,), [x], str(folder), reference, PLAN, workers=2, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


def test_the_good_config_wins_and_every_reason_is_recorded(cache: Path) -> None:
    x = torch.randn(20_000)
    heard: list[tuple[int, str]] = []
    found = find_fastest(
        jobs(x), setting(x, cache), progress=lambda n, o: heard.append((n, o.measured.status))
    )
    status = {how: o.measured.status for how, o in zip(RISKS, found.outcomes, strict=True)}
    assert status == {
        "good": "ok", "loop": "timeout", "wrong": "wrong_result", "flags": "compile_error",
        "slow": "ok",
    }  # fmt: skip
    assert [RISKS[n] for n in found.ranking] == ["good", "slow"]
    assert all(o.measured.reason for o in found.outcomes if o.measured.status != "ok")
    assert {n for n, _ in heard} == set(range(len(RISKS)))
    good = found.outcomes[0]
    assert good.hash
    assert (cache / "programs" / good.hash).is_dir()
    assert Outcome.from_json(json.loads(json.dumps(good.to_json()))) == good
    # What the winner compiled to is what the caller's program finds in the cache.
    assert torch.equal(risky(x), x * 2)


def test_what_cannot_move_is_measured_in_this_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(workshop, "ChildBench")
    x = torch.randn(20_000)
    names = ("good", "slow", "wrong")
    there = [replace(job, movable=False) for job in jobs(x, names)]
    found = find_fastest(there, setting(x, cache))
    assert {o.where for o in found.outcomes} == {"cpu"}
    assert [names[n] for n in found.ranking] == ["good", "slow"]
    assert found.outcomes[2].measured.status == "wrong_result"


def test_several_devices_share_the_configs_and_the_first_decides(cache: Path) -> None:
    x = torch.randn(20_000)
    names = ("slow", "good", "wrong", "slow")
    devices = (CPU, torch.device("cpu:0"))
    two = setting(x, cache)
    two = Setting(devices, two.inputs, two.cache_dir, two.reference, two.plan, workers=2)
    found = find_fastest(jobs(x, names), two)
    assert [names[n] for n in found.ranking] == ["good", "slow", "slow"]
    where = {o.where for o in found.outcomes if o.measured.status == "ok"}
    assert where <= {"cpu", "cpu:0"}
    assert found.outcomes[found.ranking[0]].where == "cpu"
    assert found.outcomes[found.ranking[0]].measured.latency_ms is not None


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
    assert [RISKS[n] for n in answer["ranking"]] == ["good", "slow"], answer
    assert answer["status"] == ["ok", "timeout", "wrong_result", "compile_error", "ok"]


def test_what_the_cache_holds_is_not_compiled_again(cache: Path) -> None:
    x = torch.randn(20_000)
    programs = [risky.get_tir(x, how=how) for how in ("good", "slow")]
    target = parse_target("cpu")
    with tileops.option.cache_dir(cache):
        risky(x, how="good")
        risky(x, how="slow")
        tileops.stats(reset=True)
        prepared, known = prepare(programs, target, [x], op="risky")
        assert set(known) == {0, 1}
        found = find_fastest(prepared, setting(x, cache), known=known)
        assert tileops.stats()["compiles"] == 0
        assert [o.hash for o in found.outcomes] == [known[0].hash, known[1].hash]
    assert list(found.ranking) == [0, 1]
    assert prepare([], target, [], op="risky") == ([], {})


def test_one_workshop_serves_several_campaigns(cache: Path) -> None:
    x = torch.randn(20_000)
    with workshop_for(jobs(x), setting(x, cache)) as shop:
        first = find_fastest(jobs(x, ("slow", "wrong")), setting(x, cache), shop=shop)
        (_, bench), *_ = shop.benches()
        pid = bench._child.pid  # type: ignore[attr-defined]
        # The same numbers stand for other programs now.
        second = find_fastest(jobs(x, ("good", "slow")), setting(x, cache), shop=shop)
        assert bench._child.pid == pid  # type: ignore[attr-defined]
    assert [o.measured.status for o in first.outcomes] == ["ok", "wrong_result"]
    assert second.ranking == (0, 1)


def test_outcomes_and_findings_are_values() -> None:
    outcome = Outcome(Measured("ok", 1.0, 0.9, 1.1, 50), "ab", 0.5, "cuda:0")
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert Findings((outcome,), (0,)) == Findings((outcome,), (0,))
