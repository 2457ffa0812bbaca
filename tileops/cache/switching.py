"""Owns switching the cache's directory off and on, under the names that programs use for it."""

from __future__ import annotations

from tileops import option, settings


def disable_cache() -> None:
    """Keep what is compiled from now on in memory only; see ``tileops.option.cache_disable``."""
    option.cache_disable(True)


def enable_cache() -> None:
    """Use the cache directory again."""
    option.cache_disable(False)


def is_cache_enabled() -> bool:
    """True if compiled programs are kept in a directory."""
    return not settings.current().cache_disable
