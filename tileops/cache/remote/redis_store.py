"""A remote that is a Redis server: ``redis://``, ``rediss://`` (TLS) or ``unix://``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tileops.cache.remote.stores import (
    TTL_SECONDS,
    Bounds,
    Item,
    RefusedError,
    UnavailableError,
    scrubbed,
)
from tileops.errors import CacheError

_PREFIX = "tileops/"
_PAGE = 500  # names a step of a scan
# Both compare before they act, in one step of the server's.
_DELETE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
_EXTEND = (
    "if redis.call('get',KEYS[1])==ARGV[1] then "
    "return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0"
)


class RedisStore:
    """Strings with a time to live, which each read by one who may write begins anew."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            lack = "redis:// needs its client: pip install 'tileops-torch[redis]'"
            raise CacheError(lack) from None
        self.operation_seconds = bounds.operation
        self._url = url
        self._errors = redis.exceptions
        self._can_refresh = True
        try:
            self._client = redis.Redis.from_url(
                url,
                socket_connect_timeout=bounds.connect,
                socket_timeout=bounds.operation,
                # Once, at once: a connection that the server closed while it was idle.
                retry=Retry(NoBackoff(), 1, (redis.exceptions.ConnectionError,)),
            )
        except (ValueError, TypeError) as error:
            raise CacheError(f"remote: {scrubbed(url, error)}") from None

    def get(self, name: str) -> bytes | None:
        """See ``RemoteStore``."""
        with self._explained():
            if self._can_refresh:
                try:
                    return self._bytes(self._client.getex(_PREFIX + name, ex=TTL_SECONDS))
                except self._errors.ResponseError:
                    # A user who may only read, a replica, a server without the command.
                    self._can_refresh = False
            return self._bytes(self._client.get(_PREFIX + name))

    def put(self, name: str, data: bytes) -> None:
        """See ``RemoteStore``."""
        with self._explained():
            self._client.set(_PREFIX + name, data, ex=TTL_SECONDS)

    def create(self, name: str, data: bytes) -> bool:
        """See ``RemoteStore``."""
        with self._explained():
            return bool(self._client.set(_PREFIX + name, data, ex=TTL_SECONDS, nx=True))

    def delete(self, name: str) -> None:
        """See ``RemoteStore``."""
        with self._explained():
            self._client.delete(_PREFIX + name)

    def items(self, prefix: str) -> Iterator[Item]:
        """See ``RemoteStore``."""
        page: list[bytes] = []
        with self._explained():
            for name in self._client.scan_iter(match=f"{_PREFIX}{prefix}*", count=_PAGE):
                page.append(name)
                if len(page) == _PAGE:
                    yield from self._described(page)
                    page = []
            yield from self._described(page)

    def _described(self, names: list[bytes]) -> list[Item]:
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.strlen(name)
            pipe.ttl(name)
        answers, now = pipe.execute(), time.time()
        found = []
        for name, size, left in zip(names, answers[::2], answers[1::2], strict=True):
            used_at = now - max(0, TTL_SECONDS - left) if left >= 0 else now
            found.append(Item(name.decode(errors="replace").removeprefix(_PREFIX), size, used_at))
        return found

    def lease(self, key: str, seconds: float) -> RedisLease:
        """See ``RemoteStore``."""
        return RedisLease(self, key, seconds)

    def command(self, *words: object) -> Any:  # noqa: ANN401
        """The server's answer to a command. RemoteError."""
        with self._explained():
            return self._client.execute_command(*words)

    def abandon(self) -> None:
        """Close the connections, those in use too: who still waits on one ends with an error."""
        self._client.connection_pool.disconnect(inuse_connections=True)

    def _bytes(self, value: object) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        raise UnavailableError(f"an answer of type {type(value).__name__}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (UnavailableError, RefusedError):
            raise
        except (self._errors.AuthenticationError, self._errors.ResponseError) as error:
            raise RefusedError(scrubbed(self._url, error)) from None
        except Exception as error:  # the client's own, the socket's, the resolver's
            text = f"{type(error).__name__}: {error}"
            raise UnavailableError(scrubbed(self._url, text)) from None


class RedisLease:
    """A name that expires, with its holder's token as the value."""

    def __init__(self, store: RedisStore, key: str, seconds: float) -> None:
        self._store = store
        self._name = f"{_PREFIX}1/l/{key}"
        self._token = os.urandom(16).hex()
        self._milliseconds = max(1, int(seconds * 1000))

    def acquire(self) -> bool:
        """See ``Lease``."""
        made = self._store.command("SET", self._name, self._token, "NX", "PX", self._milliseconds)
        return made is not None

    def renew(self) -> None:
        """See ``Lease``."""
        self._store.command("EVAL", _EXTEND, 1, self._name, self._token, self._milliseconds)

    def release(self) -> None:
        """See ``Lease``."""
        self._store.command("EVAL", _DELETE, 1, self._name, self._token)
