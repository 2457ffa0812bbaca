"""Gauges of the remote: what waits to be written, and whether it is asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import tileops
from tests.cache import samples
from tests.fleet import blobs
from tests.fleet.conftest import needs_servers
from tileops.cache import Store
from tileops.cache.remote import fleet

Node = Callable[..., Store]


def shown() -> dict[str, float]:
    """The remote's gauges in the Prometheus text."""
    families = text_string_to_metric_families(tileops.metrics.prometheus_text())
    return {f.name: f.samples[0].value for f in families if f.type == "gauge"}


def observed(reader: InMemoryMetricReader) -> dict[str, float]:
    data = reader.get_metrics_data()
    assert data is not None
    found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    wanted = ("tileops.remote.breaker", "tileops.remote.queue")
    return {
        m.name.replace(".", "_"): m.data.data_points[0].value  # type: ignore[union-attr]
        for m in found
        if m.name in wanted
    }


def test_the_queue_is_as_long_as_what_waits(node: Node, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    reader = InMemoryMetricReader()
    tileops.metrics.opentelemetry(MeterProvider(metric_readers=[reader]).get_meter("test"))
    empty = {"tileops_remote_breaker": 0, "tileops_remote_queue": 0}
    assert shown() == observed(reader) == empty
    node(f"file://{tmp_path}/share")
    one = fleet.current()
    assert one is not None
    # The thread that writes waits for the lock of the client.
    one.store(in_background=True)
    with one._lock:
        one.write_back.put(blobs.entry(), None)
        assert shown() == observed(reader) == {**empty, "tileops_remote_queue": 1}
    assert one.write_back.flush(20)
    assert shown() == observed(reader) == empty


@needs_servers
def test_the_breaker_opens_after_a_failure(node: Node) -> None:
    store = node("redis://127.0.0.1:1/0", "read")  # nothing listens there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store.fetch(samples.key(), samples.built)
    assert shown()["tileops_remote_breaker"] == 1
