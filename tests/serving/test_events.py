"""Hooks, the log topic ``cache``, and the metrics as Prometheus text and OpenTelemetry instruments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import tileops
import tileops.language as T
from tileops import counters
from tileops.log import TileopsWarning


def program(name: str) -> Any:
    @tileops.jit(name=name)
    def scaled(A, block_N: int = 64):
        N = T.dynamic("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            for i in T.Parallel(block_N):
                B[bx * block_N + i] = A[bx * block_N + i] * 3.0
        return B

    return scaled


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with tileops.option.cache_dir(tmp_path / "cache"):
        tileops.cache.store().clear_memory()
        yield


def series() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of the Prometheus text, by name and labels."""
    text = tileops.metrics.prometheus_text()
    families = list(text_string_to_metric_families(text))
    assert len(families) == len({family.name for family in families})
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def grown(before: dict[Any, float], name: str, **labels: str) -> float:
    key = (name, tuple(sorted(labels.items())))
    return series().get(key, 0.0) - before.get(key, 0.0)


def test_hooks_see_the_miss_the_compile_and_the_hit() -> None:
    events: list[Any] = []
    remove = tileops.on_event(events.append)
    try:
        x = torch.randn(100)
        assert torch.equal(program("watched_a")(x), x * 3)
        assert torch.equal(program("watched_b")(x), x * 3)
    finally:
        remove()
    program("watched_c")(torch.randn(3))
    kinds = [event.kind for event in events]
    assert kinds == ["lookup", "compile", "lookup", "compile"] or kinds == [
        "lookup",
        "compile",
        "lookup",
    ]
    miss, compiled = events[:2]
    assert (miss.result, miss.layer, miss.op) == ("miss", "", "watched_a")
    assert miss.why
    assert compiled.key == miss.key
    assert miss.target == compiled.target


def test_a_hook_of_one_kind_hears_nothing_else() -> None:
    events: list[Any] = []
    remove = tileops.on_event(events.append, kinds=["compile"])
    try:
        program("of_one_kind")(torch.randn(10))
        assert {event.kind for event in events} == {"compile"}
    finally:
        remove()


def test_a_hook_that_raises_is_a_warning_and_the_call_goes_on() -> None:
    def broken(event: object) -> None:
        raise RuntimeError("no room")

    remove = tileops.on_event(broken)
    try:
        x = torch.randn(10)
        with pytest.warns(TileopsWarning, match="broken of on_event raised RuntimeError: no room"):
            assert torch.equal(program("despite_hooks")(x), x * 3)
    finally:
        remove()


def test_wrong_kinds_and_hooks_are_refused() -> None:
    with pytest.raises(
        tileops.ArgumentError, match=r"kinds=\['launch'\]: expected some of compile, lookup"
    ):
        tileops.on_event(print, kinds=["launch"])
    with pytest.raises(tileops.ArgumentTypeError, match="expected a function, got int"):
        tileops.on_event(3)  # type: ignore[arg-type]


def test_lines_of_the_log_are_the_events(capsys: pytest.CaptureFixture[str]) -> None:
    key = "1fa1" * 16
    hit = counters.LookUpEvent("relu", "cpu:x86-64-v3", "hit", "disk", 0.0031, key)
    miss = counters.LookUpEvent("relu", "cpu", "miss", "", 0.0004, None, "g++ was not found")
    assert hit.line() == "hit relu cpu:x86-64-v3 layer=disk 3.1 ms 1fa11fa11fa1"
    assert miss.line() == "miss relu cpu 0.4 ms key unknown (g++ was not found)"


def test_the_text_counts_what_happened() -> None:
    before = series()
    x = torch.randn(100)
    counted = program("counted_in_metrics")
    counted(x)
    counted(x)
    assert grown(before, "tileops_cache_lookups_total", layer="none", result="miss") == 1
    assert grown(before, "tileops_compiles_total") == 1
    assert grown(before, "tileops_kernel_launches_total") == 2
    assert grown(before, "tileops_kernel_loads_total") == 1
    assert grown(before, "tileops_kernel_load_seconds_total") > 0
    target = str(tileops.target.parse_target("cpu"))
    assert grown(before, "tileops_compile_duration_seconds_count", target=target) == 1
    assert grown(before, "tileops_compile_duration_seconds_bucket", target=target, le="+Inf") == 1
    assert grown(before, "tileops_cache_operation_duration_seconds_count", operation="store") >= 1
    tileops.stats(reset=True)
    assert grown(before, "tileops_compiles_total") == 1  # a reset is not a restart


def test_what_the_fleet_cache_did_is_counted() -> None:
    before = series()
    counters.add("remote_dropped", 3)
    assert grown(before, "tileops_remote_dropped_total") == 3


def test_an_operation_that_fails_names_the_error() -> None:
    before = series()
    with pytest.raises(OSError, match="full"), counters.timed("store"):
        raise OSError("full")
    name = "tileops_cache_operation_duration_seconds_count"
    assert grown(before, name, operation="store", error_type="OSError") == 1


def test_labels_are_escaped() -> None:
    counters.observe("tileops.compile.duration", 0.5, (("target", 'a"b\\c\nd'),))
    target = 'a"b\\c\nd'
    assert ("tileops_compile_duration_seconds_sum", (("target", target),)) in series()


def test_instruments_report_the_same() -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    tileops.metrics.opentelemetry(meter)
    program("in_instruments")(torch.randn(10))
    data = reader.get_metrics_data()
    found = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert (
        found["tileops.kernel.launches"].data.data_points[0].value
        == series()[("tileops_kernel_launches_total", ())]
    )
    lookups = {
        p.attributes["layer"]: p.value for p in found["tileops.cache.lookups"].data.data_points
    }
    assert lookups["none"] >= 1
    durations = found["tileops.compile.duration"]
    assert durations.unit == "s"
    assert sum(point.count for point in durations.data.data_points) == 1
    assert found["tileops.cache.operation.duration"].data.data_points
