"""Counters of this process: compiles, hits, misses, loads, launches, and time by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from tileops import forks, log
from tileops.errors import ArgumentError, ArgumentTypeError

Labels = tuple[tuple[str, str], ...]
_T = TypeVar("_T")

NAMES = (
    "compiles", "memory_hits", "disk_hits", "misses", "loads", "jits", "launches", "tunings",
    "remote_hits", "remote_misses", "remote_damaged", "remote_untrusted", "remote_unavailable",
    "remote_puts", "remote_dropped", "remote_lease_waits", "remote_leases_expired",
)  # fmt: skip

_counts: dict[str, int] = dict.fromkeys(NAMES, 0)
_past: dict[str, int] = dict.fromkeys(NAMES, 0)  # what resets of ``stats`` took away
_milliseconds: dict[str, float] = {}
_lookups: dict[tuple[str, str], int] = {}
_durations: dict[tuple[str, Labels], Duration] = {}
# C++ counts launches and loads and knows nothing of resets: _provider_base is its last report.
_provider: Callable[[], Mapping[str, int]] | None = None
_provider_base: dict[str, int] = {}
_gauges: Callable[[], Mapping[str, float]] | None = None
_hooks: list[Callable[[CompileEvent], None]] = []
_listeners: list[tuple[frozenset[str], Callable[[Event], None]]] = []
_recorders: list[Callable[[str, float, Labels], None]] = []

# The stages that are operations of the cache, in the metrics.
CACHE_OPERATIONS = frozenset({"key", "lookup", "store"})
BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of histograms, in seconds


@dataclass
class Duration:
    """A histogram of durations: how many fell into each range of ``BOUNDS``, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0


@dataclass(frozen=True)
class LookUpEvent:
    """One search for a compiled program: in which layer it was found, or why nowhere."""

    kind: ClassVar[str] = "lookup"
    op: str
    target: str
    result: str  # hit or miss
    layer: str  # where it was found: memory, disk, remote, bundle, alias; empty for a miss
    seconds: float
    key: str | None  # hash of the cache key; None if it is not known
    why: str = ""  # of a miss, or what is special about a hit

    def line(self) -> str:
        """The event as one line for the log."""
        name = "key unknown" if self.key is None else self.key[:12]
        layer = f" layer={self.layer}" if self.layer else ""
        why = f" ({self.why})" if self.why else ""
        return (
            f"{self.result} {self.op} {self.target}{layer} {self.seconds * 1e3:.1f} ms {name}{why}"
        )


@dataclass(frozen=True)
class CompileEvent:
    """One compile: what was compiled, for what, why, and how long it took."""

    kind: ClassVar[str] = "compile"
    op: str
    target: str
    why: str
    seconds: float
    key: str  # hash of the cache key
    sizes: Mapping[str, int | str] = field(default_factory=dict)

    def line(self) -> str:
        """The event as one line for the log."""
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        parts = [f"compiled {self.op}", sizes, f"for {self.target} in {self.seconds:.2f} s"]
        return " ".join(part for part in parts if part) + f" ({self.why}) {self.key[:12]}"


Event = CompileEvent | LookUpEvent
KINDS = ("compile", "lookup")


def add(name: str, amount: int = 1) -> None:
    """Add to counter ``name``, one of ``NAMES``."""
    with forks.guard:
        _counts[name] += amount


@contextmanager
def timed(stage: str) -> Iterator[None]:
    """Add the block's time to a stage: trace, key, lookup, generate, compile, store, load, tune."""
    start = time.perf_counter()
    error = ""
    try:
        yield
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        spent = time.perf_counter() - start
        with forks.guard:
            _milliseconds[stage] = _milliseconds.get(stage, 0.0) + spent * 1e3
        if stage in CACHE_OPERATIONS:
            labels = (("operation", stage),) + ((("error.type", error),) if error else ())
            observe("tileops.cache.operation.duration", spent, labels)


def observe(name: str, seconds: float, labels: Labels) -> None:
    """Add one duration to the histogram ``name`` of the metrics."""
    place = sum(seconds > bound for bound in BOUNDS)
    with forks.guard:
        histogram = _durations.setdefault((name, labels), Duration())
        histogram.counts[place] += 1
        histogram.seconds += seconds
        recorders = tuple(_recorders)
    for record in recorders:
        record(name, seconds, labels)


def set_provider(provider: Callable[[], Mapping[str, int]] | None) -> None:
    """Give the function that reports counters kept elsewhere (the runtime's), which are added."""
    global _provider, _provider_base
    with forks.guard:
        _provider = provider
        _provider_base = {}


def set_gauges(provider: Callable[[], Mapping[str, float]]) -> None:
    """Give the function that reports the remote's state: what may rise and fall."""
    global _gauges
    with forks.guard:
        _gauges = provider


def gauges() -> dict[str, float]:
    """The remote's state, empty as long as no remote was needed."""
    return {} if _gauges is None else dict(_gauges())


def stats(reset: bool = False) -> dict[str, object]:
    """Counters since the start or the last reset, and ``"ms"``: milliseconds by stage.

    Keys: ``NAMES`` and ``ms``. ``jits`` are those loads that were of PTX, which the driver
    compiles.
    """
    global _provider_base
    with forks.guard:
        outside = dict(_provider()) if _provider is not None else {}
        result: dict[str, object] = {
            name: _counts[name] + outside.get(name, 0) - _provider_base.get(name, 0)
            for name in NAMES
        }
        spent = {**_milliseconds}
        for stage in ("load", "jit"):
            loading = outside.get(f"{stage}_ns", 0) - _provider_base.get(f"{stage}_ns", 0)
            if loading:
                spent[stage] = spent.get(stage, 0.0) + loading * 1e-6
        result["ms"] = {stage: round(ms, 3) for stage, ms in sorted(spent.items())}
        if reset:
            _past.update({name: _past[name] + _counts[name] for name in NAMES})
            _counts.update(dict.fromkeys(NAMES, 0))
            _milliseconds.clear()
            _provider_base = outside
    return result


@dataclass(frozen=True)
class Totals:
    """Everything counted since the start of the process, whatever ``stats`` has reset."""

    counts: Mapping[str, int]
    outside: Mapping[str, int]  # the runtime's own names
    lookups: Mapping[tuple[str, str], int]  # by layer and result
    durations: Mapping[tuple[str, Labels], Duration]


def totals() -> Totals:
    """What the metrics report."""
    with forks.guard:
        return Totals(
            {name: _past[name] + _counts[name] for name in NAMES},
            dict(_provider()) if _provider is not None else {},
            dict(_lookups),
            {key: Duration(list(d.counts), d.seconds) for key, d in _durations.items()},
        )


def add_recorder(record: Callable[[str, float, Labels], None]) -> None:
    """Call ``record(name, seconds, labels)`` for each duration from now on."""
    with forks.guard:
        _recorders.append(record)


def on_event(hook: Callable[[Event], None], kinds: Iterable[str] = KINDS) -> Callable[[], None]:
    """Call ``hook(event)`` after each event of ``kinds``; returns a function that removes it.

    Kinds: ``compile`` (CompileEvent) and ``lookup`` (LookUpEvent: a program was searched in memory,
    on disk and in bundles); ``event.kind`` is that word. Calls of loaded kernels make no event. A
    hook that raises is one warning, and the call goes on. ArgumentError for another kind.
    """
    wanted = frozenset((kinds,) if isinstance(kinds, str) else kinds)
    if not wanted <= set(KINDS):
        raise ArgumentError(
            f"on_event: kinds={sorted(wanted)}: expected some of {', '.join(KINDS)}"
        )
    if not callable(hook):
        raise ArgumentTypeError(f"on_event: expected a function, got {type(hook).__name__}")
    return _added(_listeners, (wanted, hook))


def is_listened_to(kind: str) -> bool:
    """True if a hook of ``on_event`` wants events of this kind: some cost something to make."""
    with forks.guard:
        return any(kind in kinds for kinds, _ in _listeners)


def tell(event: Event) -> None:
    """Call the hooks of ``on_event`` that want this event."""
    with forks.guard:
        hooks = [hook for kinds, hook in _listeners if event.kind in kinds]
    for hook in hooks:
        try:
            hook(event)
        except Exception as error:
            name = getattr(hook, "__qualname__", repr(hook))
            log.warn_once(
                f"hook:{name}",
                f"the hook {name} of on_event raised {type(error).__name__}: {error}",
            )


def record_lookup(event: LookUpEvent) -> None:
    """Count one search, write its log line (topic ``cache``) and call the hooks."""
    with forks.guard:
        key = (event.layer, event.result)
        _lookups[key] = _lookups.get(key, 0) + 1
    if log.is_wanted("cache"):
        log.emit("cache", event.line())
    tell(event)


def on_compile(hook: Callable[[CompileEvent], None]) -> Callable[[], None]:
    """Call ``hook(event)`` after each compile from now on; returns a function that removes it."""
    return _added(_hooks, hook)


def _added(place: list[_T], item: _T) -> Callable[[], None]:
    with forks.guard:
        place.append(item)

    def remove() -> None:
        with forks.guard:
            if item in place:
                place.remove(item)

    return remove


def record_compile(event: CompileEvent) -> None:
    """Count one compile, write its log line (topic ``compile``) and call the hooks."""
    add("compiles")
    observe("tileops.compile.duration", event.seconds, (("target", event.target),))
    log.emit("compile", event.line())
    with forks.guard:
        hooks = tuple(_hooks)
    for hook in hooks:
        hook(event)
    tell(event)
