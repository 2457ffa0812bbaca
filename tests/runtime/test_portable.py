"""Code of bundles on GPUs that they do not name: the nearest cubin, else PTX, else a miss that says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.conftest import run_module
from tests.runtime.portable_calls import CASES, DEVICES

CAPABILITIES = [capability for capability, _ in DEVICES]


@pytest.fixture(scope="module", params=["python", "c"])
def found(
    request: pytest.FixtureRequest, fake_driver_path: Path, torch_cuda_path: Path
) -> dict[str, Any]:
    module = "tests.runtime.portable_calls"
    out: dict[str, Any] = json.loads(
        run_module(module, fake_driver_path, torch_cuda_path, request.param)
    )
    return out


def on(found: dict[str, Any], case: str) -> dict[int, str]:
    return dict(zip(CAPABILITIES, found[case], strict=True))


def test_a_cubin_runs_on_newer_gpus_of_its_generation_alone(found: dict[str, Any]) -> None:
    ran = on(found, "cubin_only")
    assert [ran[c] for c in (80, 86, 89)] == ["cubin k80"] * 3
    for number, capability in enumerate(CAPABILITIES):
        if capability in (87, 90, 100):  # Tegra's chips are apart
            assert ran[capability] == (
                f"CompileMissError: portable_cubin_only: no kernel for cuda:{number} (sm_{capability}), "
                "aligned in the bundle /cubin_only (cuda:sm_80); add this combination with "
                "tileops.bundle"
            )


def test_ptx_serves_where_no_cubin_does(found: dict[str, Any]) -> None:
    ran = on(found, "with_ptx")
    assert [ran[c] for c in (80, 86, 89)] == ["cubin k80"] * 3
    assert [ran[c] for c in (87, 90, 100)] == ["ptx k80"] * 3
    assert found["again"] == found["loaded again"] == "k80", "it is loaded"


def test_code_of_the_devices_own_comes_first(found: dict[str, Any]) -> None:
    ran = on(found, "own_first")
    assert ran[90] == "cubin k90"
    assert ran[100] == "ptx k80", "code with features of sm_90 runs there alone"


def test_the_nearest_cubin_and_the_newest_ptx(found: dict[str, Any]) -> None:
    ran = on(found, "best")
    assert ran == {
        80: "cubin k80", 86: "cubin k86", 89: "cubin k86", 87: "ptx k86", 90: "cubin k90",
        100: "ptx k86",
    }  # fmt: skip
    assert on(found, "tegra") == {
        80: "cubin k80", 86: "cubin k80", 87: "cubin k87", 89: "cubin k80", 90: "ptx k87",
        100: "ptx k87",
    }  # fmt: skip


def test_what_needs_more_shared_memory_than_the_device_has_does_not_serve(
    found: dict[str, Any],
) -> None:
    ran = on(found, "large")
    assert (ran[80], ran[87], ran[90]) == ("cubin k80", "ptx k80", "ptx k80")
    for capability in (86, 89):
        assert ran[capability].startswith("CompileMissError: portable_large: no kernel for cuda:")


def test_jits_are_counted_and_logged(found: dict[str, Any]) -> None:
    texts = [text for case in CASES for text in found[case]]
    assert found["jits"] == sum(text.startswith("ptx ") for text in texts) > 0
    assert (
        "portable_with_ptx on cuda:0 (sm_90): PTX of sm_80, which the driver compiles, from /with_ptx"
        in found["log"]
    )
    assert "portable_best on cuda:2 (sm_89): code for sm_86, from /best" in found["log"]


def test_a_driver_that_is_older_than_the_ptx_is_named_with_its_version(
    found: dict[str, Any],
) -> None:
    assert "while a CUDA graph is being captured" in found["captured"]
    assert found["older"].startswith(
        "CompileMissError: portable_older: no kernel for cuda:0 (sm_90), aligned in the bundle /older "
        "(cuda:sm_80), and the driver refuses what it has: PTX .version 8.8 for sm_80, the driver is "
        "for CUDA 13.0: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): "
    )
