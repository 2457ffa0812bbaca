"""The client of the remote that a URL names; its package is imported here, at the first miss."""

from __future__ import annotations

import urllib.parse

from tileops.cache.remote.stores import OBJECT_BOUNDS, REDIS_BOUNDS, Bounds, RemoteStore, shown
from tileops.errors import CacheError
from tileops.settings import REMOTE_SCHEMES


def open_store(url: str, bounds: Bounds | None = None) -> RemoteStore:
    """A client of the remote ``url``; connects at its first use.

    CacheError if a package is missing, which the text names, or the URL cannot be used.
    """
    scheme = url.partition(":")[0]
    if scheme == "file":
        from tileops.cache.remote.folder_store import FolderStore

        return FolderStore(folder_of(url), bounds or OBJECT_BOUNDS)
    if scheme in ("redis", "rediss", "unix"):
        from tileops.cache.remote.redis_store import RedisStore

        return RedisStore(url, bounds or REDIS_BOUNDS)
    if scheme in REMOTE_SCHEMES:
        from tileops.cache.remote.object_store import ObjectStore

        return ObjectStore(url, bounds or OBJECT_BOUNDS)
    raise CacheError(f"remote {shown(url)}: expected one of {', '.join(REMOTE_SCHEMES)}")


def folder_of(url: str) -> str:
    """The folder that a ``file://`` URL names."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path)
