"""Counters of this process: compiles, hits, misses, loads, launches, and time by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tileops import forks, log

NAMES = (
    "compiles", "memory_hits", "disk_hits", "misses", "loads", "jits", "launches", "tunings",
    "remote_hits", "remote_misses", "remote_damaged", "remote_untrusted", "remote_unavailable",
    "remote_puts", "remote_dropped", "remote_lease_waits", "remote_leases_expired",
)  # fmt: skip

_counts: dict[str, int] = dict.fromkeys(NAMES, 0)
_milliseconds: dict[str, float] = {}
# C++ counts launches and loads and knows nothing of resets: _provider_base is its last report.
_provider: Callable[[], Mapping[str, int]] | None = None
_provider_base: dict[str, int] = {}
_hooks: list[Callable[[CompileEvent], None]] = []


@dataclass(frozen=True)
class CompileEvent:
    """One compile: what was compiled, for what, why, and how long it took."""

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


def add(name: str, amount: int = 1) -> None:
    """Add to counter ``name``, one of ``NAMES``."""
    with forks.guard:
        _counts[name] += amount


@contextmanager
def timed(stage: str) -> Iterator[None]:
    """Add the block's time to a stage: trace, key, lookup, generate, compile, store, load, tune."""
    start = time.perf_counter()
    try:
        yield
    finally:
        spent = (time.perf_counter() - start) * 1e3
        with forks.guard:
            _milliseconds[stage] = _milliseconds.get(stage, 0.0) + spent


def set_provider(provider: Callable[[], Mapping[str, int]] | None) -> None:
    """Give the function that reports counters kept elsewhere (the runtime's), which are added."""
    global _provider, _provider_base
    with forks.guard:
        _provider = provider
        _provider_base = {}


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
            _counts.update(dict.fromkeys(NAMES, 0))
            _milliseconds.clear()
            _provider_base = outside
    return result


def on_compile(hook: Callable[[CompileEvent], None]) -> Callable[[], None]:
    """Call ``hook(event)`` after each compile from now on; returns a function that removes it."""
    with forks.guard:
        _hooks.append(hook)

    def remove() -> None:
        with forks.guard:
            if hook in _hooks:
                _hooks.remove(hook)

    return remove


def record_compile(event: CompileEvent) -> None:
    """Count one compile, write its log line (topic ``compile``) and call the hooks."""
    add("compiles")
    log.emit("compile", event.line())
    with forks.guard:
        hooks = tuple(_hooks)
    for hook in hooks:
        hook(event)
