"""``tileops health``: what it looks at, its exit status, and what a probe reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tileops
from tests.fleet.blobs import keys_file
from tests.programs import samples
from tileops.cli import environment, health
from tileops.cli.main import main


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tileops.bundle(tmp_path_factory.mktemp("health") / "bundle", samples.axpy, "cpu")


def run(
    capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, dict[str, str], dict[str, str]]:
    """The exit status, and of each check its state and its text."""
    capsys.readouterr()
    status = main(["health", "--json", *map(str, arguments)])
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == ("ok", "degraded", "failing")[status]
    states = {check["name"]: check["state"] for check in report["checks"]}
    return status, states, {check["name"]: check["text"] for check in report["checks"]}


@pytest.fixture(autouse=True)
def _no_gpu_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    # A CUDA build of torch on a machine without a GPU is degraded, which is not the question here.
    monkeypatch.setattr(health, "_cuda", lambda: health.Check("cuda", health.GOOD, "not looked at"))


def test_a_whole_machine_is_well(capsys: pytest.CaptureFixture[str], bundle: Path) -> None:
    status, states, texts = run(capsys, "--bundle", bundle)
    assert status == 0, texts
    assert set(states) == {"torch", "runtime", "cache", "compiler", "cuda", f"bundle {bundle}"}
    assert texts[f"bundle {bundle}"] == "1 ops"


def test_people_get_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health"]) == 0
    assert "ok        runtime" in capsys.readouterr().out


def test_without_a_compiler_it_is_degraded(capsys: pytest.CaptureFixture[str]) -> None:
    with tileops.option.Override(cxx="/nowhere/g++"):
        status, states, texts = run(capsys)
    assert (status, states["compiler"]) == (1, "degraded")
    assert "/nowhere/g++" in texts["compiler"]


def test_without_a_cache_it_is_degraded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with tileops.option.cache_dir(tmp_path / "file" / "cache"):
        status, states, texts = run(capsys)
    assert (status, states["cache"]) == (1, "degraded")
    assert texts["cache"].startswith("memory only: ")
    with tileops.option.cache_disable():
        assert run(capsys)[0] == 0  # as asked


@pytest.mark.parametrize("how", ["argument", "setting"])
def test_a_bundle_that_does_not_load_is_failing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    path = tmp_path / "none"
    if how == "setting":
        monkeypatch.setenv("TILEOPS_BUNDLE", str(path))
    status, states, texts = run(capsys, *(["--bundle", path] if how == "argument" else []))
    assert (status, states[f"bundle {path}"]) == (2, "failing")
    assert str(path) in texts[f"bundle {path}"]


def test_a_bundle_for_other_machines_is_failing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bundle: Path
) -> None:
    monkeypatch.setattr(health, "_runs_here", lambda target: False)
    status, _, texts = run(capsys, "--bundle", bundle)
    assert status == 2
    assert texts[f"bundle {bundle}"] == "no kernel for this machine: tileops::sample_axpy"


def test_levels_of_this_processor_run_here_and_higher_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "host_cpu_level", lambda: "x86-64-v3")
    assert [health._runs_here(f"cpu:x86-64-v{n}") for n in (2, 3, 4)] == [True, True, False]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda index: (9, 0))
    assert health._runs_here("cuda:sm_90")
    assert not health._runs_here("cuda:sm_80")


def test_a_runtime_that_does_not_load_is_failing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ImportError("libtorch_cpu.so is missing")

    monkeypatch.setattr("tileops.runtime.counters", broken)
    status, states, texts = run(capsys)
    assert (status, states["runtime"]) == (2, "failing")
    assert texts["runtime"].endswith("libtorch_cpu.so is missing")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"tileops {environment.version()}\n"


def test_a_remote_is_tried_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with tileops.option.remote(f"file://{tmp_path}", mode="readwrite", keys=keys_file(tmp_path)):
        assert not any(name.startswith("remote") for name in run(capsys)[1])
        status, states, texts = run(capsys, "--remote")
    assert status == 0, texts
    wanted = {"remote", "remote keys", "remote answer", "remote signing", "remote writing"}
    assert {name for name in states if name.startswith("remote")} == wanted
    assert str(tmp_path) in texts["remote"]


def test_a_remote_that_does_not_work_is_degraded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, states, texts = run(capsys, "--remote")
    assert (status, states["remote"]) == (1, "degraded")
    assert "TILEOPS_REMOTE" in texts["remote"]
    with tileops.option.remote(f"file://{tmp_path}", keys=tmp_path / "none"):
        status, states, texts = run(capsys, "--remote")
    assert (status, states["remote keys"]) == (1, "degraded")
    assert "none" in texts["remote keys"]
