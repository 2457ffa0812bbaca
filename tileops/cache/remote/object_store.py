"""A remote in an object store, through fsspec: ``s3://bucket/prefix``, ``gs://bucket/prefix``."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tileops.cache import envelope
from tileops.cache.remote.lease import BucketLease
from tileops.cache.remote.stores import (
    Bounds,
    Item,
    RefusedError,
    RemoteError,
    UnavailableError,
    scrubbed,
    within,
)
from tileops.errors import CacheError

_CONNECT_SECONDS = 5.0
# What a store says when several creates of one name meet.
_CONFLICTS = ("ConditionalRequestConflict", "PreconditionFailed")


class ObjectStore:
    """Objects below a prefix of a bucket. An object is written whole or not at all."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        scheme, _, rest = url.partition("://")
        extra = {"s3": "s3", "gs": "gcs"}[scheme]
        self.operation_seconds = bounds.operation
        self._url = url
        self._root = rest.partition("?")[0].rstrip("/")
        if not self._root:
            raise CacheError(f"remote {scheme}://: expected a bucket")
        try:
            import fsspec

            kind = fsspec.get_filesystem_class(scheme)
        except ImportError:
            raise CacheError(
                f"{scheme}:// needs its client: pip install 'tileops-torch[{extra}]'"
            ) from None
        self._files = kind(**_options(scheme, bounds), skip_instance_cache=True)
        self._files.retries = 1
        if hasattr(self._files, "connect"):
            # Reads the store's description and looks for credentials, once.
            within(max(_CONNECT_SECONDS, bounds.operation), self._files.connect)

    def get(self, name: str) -> bytes | None:
        """See ``RemoteStore``."""
        with self._explained():
            try:
                # With a range it is one request, and an object too large is not read whole.
                data = self._files.cat_file(self._path(name), start=0, end=envelope.LIMIT + 1)
                return bytes(data)
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        """See ``RemoteStore``."""
        with self._explained():
            self._files.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """See ``RemoteStore``."""
        with self._explained():
            try:
                self._files.pipe_file(self._path(name), data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if not any(word in f"{error} {error.__cause__}" for word in _CONFLICTS):
                    raise
                return False
            return True

    def delete(self, name: str) -> None:
        """See ``RemoteStore``."""
        with self._explained():
            try:
                self._files.rm_file(self._path(name))
            except FileNotFoundError:
                return

    def items(self, prefix: str) -> Iterator[Item]:
        """See ``RemoteStore``."""
        with self._explained():
            found = self._files.find(self._path(prefix), detail=True, refresh=True)
            for path, fact in sorted(found.items()):
                written = fact.get("LastModified") or fact.get("updated") or fact.get("mtime")
                name = path.removeprefix(f"{self._root}/")
                yield Item(name, int(fact["size"]), _seconds(written))

    def lease(self, key: str, seconds: float) -> BucketLease:
        """See ``RemoteStore``."""
        return BucketLease(self, key, seconds)

    def abandon(self) -> None:
        """See ``RemoteStore``: its threads end by themselves."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RemoteError:
            raise
        except (PermissionError, FileNotFoundError) as error:
            raise RefusedError(scrubbed(self._url, error)) from None
        except Exception as error:  # the client's own, those below it, the resolver's
            text = f"{type(error).__name__}: {error}"
            raise UnavailableError(scrubbed(self._url, text)) from None


def _options(scheme: str, bounds: Bounds) -> dict[str, Any]:
    if scheme != "s3":
        return {"timeout": bounds.operation}
    limits = {"connect_timeout": bounds.connect, "read_timeout": bounds.operation}
    # One try: whoever asks has no time for another one.
    return {"config_kwargs": {**limits, "retries": {"max_attempts": 0}}}


def _seconds(written: object) -> float:
    if isinstance(written, str):
        written = datetime.datetime.fromisoformat(written.replace("Z", "+00:00"))
    return written.timestamp() if isinstance(written, datetime.datetime) else 0.0
