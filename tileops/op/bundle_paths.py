"""The bundles that programs with source look into; without torch, which compile workers lack."""

from __future__ import annotations

from tileops import settings

_loaded: dict[str, bool] = {}  # by folder: whether others may have written it


def add(path: str, *, shared: bool) -> None:
    """Look into a bundle that was loaded for programs with source, as a fallback or for an op."""
    _loaded.setdefault(path, shared)


def serving() -> tuple[tuple[str, bool], ...]:
    """The bundles of the settings, then loaded ones; each with ``shared`` as ``Trust`` takes it."""
    now = settings.current()
    named = dict.fromkeys(now.bundle, now.cache_trust_shared)
    return tuple({**named, **{p: s for p, s in _loaded.items() if p not in named}}.items())
