"""Leases where a store can do no more than create: one object a stretch of time.

Time is divided into buckets as long as the lease, by each machine's own clock. Who creates the
object of the present bucket holds the lease, and creates the next one at once, so that no gap is
left where one bucket ends. Clocks that differ cost a second compile and nothing else.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

from tileops.cache.remote.stores import LEASES, RemoteError


class _Creating(Protocol):
    def create(self, name: str, data: bytes) -> bool: ...

    def delete(self, name: str) -> None: ...


class BucketLease:
    """The lease of one key; it ends by itself at most two buckets after its last renewal."""

    def __init__(self, store: _Creating, key: str, seconds: float) -> None:
        self._store = store
        self._prefix = f"{LEASES}{key}/"
        self._seconds = max(0.001, seconds)
        self._token = os.urandom(16).hex().encode()
        self._made: list[int] = []

    def acquire(self) -> bool:
        """See ``Lease``."""
        now = self._bucket()
        return self._create(now) and self._create(now + 1)

    def renew(self) -> None:
        """See ``Lease``."""
        now = self._bucket()
        for bucket in (now, now + 1):
            if bucket not in self._made:
                self._create(bucket)

    def release(self) -> None:
        """See ``Lease``."""
        made, self._made = self._made, []
        problem = None
        for bucket in made:
            try:
                self._store.delete(f"{self._prefix}{bucket}")
            except RemoteError as error:  # such as no permission: the buckets pass by themselves
                problem = error
        if problem is not None:
            raise problem

    def _create(self, bucket: int) -> bool:
        made = self._store.create(f"{self._prefix}{bucket}", self._token)
        if made:
            self._made.append(bucket)
        return made

    def _bucket(self) -> int:
        return int(time.time() // self._seconds)
