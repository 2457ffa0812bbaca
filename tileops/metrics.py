"""What a server's monitoring reads: the counters as Prometheus text and OpenTelemetry instruments.

Names follow OpenTelemetry: dots, seconds, few labels. Nothing here runs unless it is called, and
calls of loaded kernels are counted by the runtime in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tileops import counters

# By name: unit, description.
COUNTERS = {
    "tileops.cache.lookups": ("{lookup}", "Searches for a compiled program."),
    "tileops.compiles": ("{compile}", "Programs that were compiled."),
    "tileops.tunings": ("{tuning}", "Tunings that ran."),
    "tileops.kernel.launches": ("{launch}", "Kernel launches."),
    "tileops.kernel.loads": ("{load}", "Kernel images that were loaded."),
    "tileops.kernel.load": ("s", "Seconds spent loading kernel images."),
    "tileops.call.misses": ("{call}", "Calls whose kernel was not there yet."),
}
# By name in ``counters.gauges``: name, unit, description.
GAUGES = {
    "breaker": (
        "tileops.remote.breaker",
        "1",
        "1 while a remote that failed is not asked.",
    ),
    "queue": ("tileops.remote.queue", "{entry}", "Entries that wait to be written to the remote."),
}
DURATIONS = {
    "tileops.compile.duration": "Seconds that a compile took.",
    "tileops.cache.operation.duration": "Seconds that an operation of the cache took.",
}
# The runtime's names of its counters, and what one is worth.
_OUTSIDE = {
    "launches": ("tileops.kernel.launches", 1),
    "loads": ("tileops.kernel.loads", 1),
    "load_ns": ("tileops.kernel.load", 1e-9),
    "resolves": ("tileops.call.misses", 1),
}
_REMOTE = {name: f"tileops.remote.{name[7:]}" for name in counters.NAMES if name[:7] == "remote_"}
_COUNTED = {"compiles": "tileops.compiles", "tunings": "tileops.tunings", **_REMOTE}
COUNTERS.update(
    {name: ("{event}", f"Answers of the fleet cache: {name[15:]}.") for name in _REMOTE.values()}
)

Value = tuple[counters.Labels, float]


def values() -> dict[str, list[Value]]:
    """The counters by name: labels and value of each series, since the start of the process."""
    totals = counters.totals()
    found: dict[str, list[Value]] = {name: [] for name in COUNTERS}
    found["tileops.cache.lookups"] = [
        ((("layer", layer or "none"), ("result", result)), count)
        for (layer, result), count in sorted(totals.lookups.items())
    ]
    for own, name in _COUNTED.items():
        found[name] = [((), totals.counts[own])]
    for theirs, (name, unit) in _OUTSIDE.items():
        found[name] = [((), totals.outside.get(theirs, 0) * unit)]
    return found


def prometheus_text() -> str:
    """All metrics in Prometheus' text format (0.0.4): what a handler of ``/metrics`` returns."""
    lines: list[str] = []
    for name, series in values().items():
        unit, text = COUNTERS[name]
        title = _flat(name) + ("_seconds" if unit == "s" else "") + "_total"
        lines += [f"# HELP {title} {text}", f"# TYPE {title} counter"]
        lines += [f"{title}{_braces(labels)} {_number(value)}" for labels, value in series]
    now = counters.gauges()
    for own, (name, _, text) in GAUGES.items():
        lines += [f"# HELP {_flat(name)} {text}", f"# TYPE {_flat(name)} gauge"]
        lines.append(f"{_flat(name)} {_number(now.get(own, 0))}")
    durations = counters.totals().durations
    for name, text in DURATIONS.items():
        title = f"{_flat(name)}_seconds"
        lines += [f"# HELP {title} {text}", f"# TYPE {title} histogram"]
        for (owner, labels), duration in sorted(durations.items(), key=lambda item: item[0]):
            if owner == name:
                lines += _histogram(title, labels, duration)
    return "\n".join(lines) + "\n"


def opentelemetry(meter: Any) -> None:  # noqa: ANN401  (a Meter of a package that may not be there)
    """Make the metrics instruments of an OpenTelemetry ``meter``; its readers do the rest.

    Counters and gauges are observed when a reader collects; durations are recorded from now on.
    Needs the package opentelemetry-api, which the meter comes from.
    """
    from opentelemetry.metrics import Observation

    def observer(name: str) -> Callable[[object], Iterator[Any]]:
        def observe(options: object) -> Iterator[Any]:
            for labels, value in values()[name]:
                yield Observation(value, dict(labels))

        return observe

    for name, (unit, text) in COUNTERS.items():
        meter.create_observable_counter(name, [observer(name)], unit=unit, description=text)

    def gauge(own: str) -> Callable[[object], Iterator[Any]]:
        return lambda options: iter([Observation(counters.gauges().get(own, 0))])

    for own, (name, unit, text) in GAUGES.items():
        meter.create_observable_gauge(name, [gauge(own)], unit=unit, description=text)
    histograms = {
        name: meter.create_histogram(name, unit="s", description=text)
        for name, text in DURATIONS.items()
    }

    def record(name: str, seconds: float, labels: counters.Labels) -> None:
        histograms[name].record(seconds, dict(labels))

    counters.add_recorder(record)


def _histogram(title: str, labels: counters.Labels, duration: counters.Duration) -> Iterator[str]:
    total = 0
    for bound, count in zip((*counters.BOUNDS, None), duration.counts, strict=True):
        total += count
        text = "+Inf" if bound is None else f"{bound:g}"
        yield f"{title}_bucket{_braces((*labels, ('le', text)))} {total}"
    yield f"{title}_sum{_braces(labels)} {_number(duration.seconds)}"
    yield f"{title}_count{_braces(labels)} {total}"


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9f}"


def _braces(labels: counters.Labels) -> str:
    escaped: Mapping[str, str] = {
        _flat(name): value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, value in labels
    }
    inside = ",".join(f'{name}="{value}"' for name, value in escaped.items())
    return f"{{{inside}}}" if inside else ""
