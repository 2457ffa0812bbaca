"""The bundles that programs with source look into; without torch, which compile workers lack."""

from __future__ import annotations

from tileops import settings

_loaded: dict[str, bool] = {}  # by folder: whether others may have written it
_installed: dict[str, bool] = {}


def add(path: str, *, shared: bool) -> None:
    """Look into a bundle that was loaded for programs with source, as a fallback or for an op."""
    _loaded.setdefault(path, shared)


def add_installed(path: str) -> None:
    """Look into the bundle of an installed package, whose modules are code of the same origin."""
    _installed.setdefault(path, True)


def is_installed(path: str) -> bool:
    """Whether a bundle is that of an installed package."""
    return path in _installed


def serving() -> tuple[tuple[str, bool], ...]:
    """The bundles of the settings, loaded ones, then those of installed packages.

    Each comes with ``shared`` as ``Trust`` takes it.
    """
    now = settings.current()
    found = dict.fromkeys(now.bundle, now.cache_trust_shared)
    for path, shared in (*_loaded.items(), *(_installed.items() if now.installed_bundles else ())):
        found.setdefault(path, shared)
    return tuple(found.items())
