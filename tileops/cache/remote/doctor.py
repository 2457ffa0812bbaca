"""``remote doctor``: each thing that a machine does with a remote, tried once."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tileops.cache.remote.fleet import Fleet
from tileops.cache.remote.redis_store import RedisStore
from tileops.cache.remote.stores import ENTRIES, LEASES, RemoteError, RemoteStore, shown
from tileops.errors import CacheError

_SOON_SECONDS = 30 * 86400.0
_TRIES = 5


@dataclass(frozen=True)
class Check:
    """One thing that was tried."""

    name: str
    ok: bool
    says: str


def examine(fleet: Fleet) -> Iterator[Check]:
    """All checks; later ones are left out where an earlier one makes them pointless."""
    mode = "readwrite" if fleet.config.writes else "read"
    yield Check("remote", True, f"{shown(fleet.config.url)}, {mode}")
    yield _tried("keys", lambda: _keys(fleet))
    try:
        store = fleet.store()
    except (RemoteError, CacheError) as error:
        yield Check("client", False, str(error))
        return
    answer = _tried("answer", lambda: _answer(store))
    yield answer
    if not answer.ok:
        return
    if isinstance(store, RedisStore):
        yield _tried("eviction", lambda: _eviction(store))
    if fleet.config.writes:
        yield _tried("signing", lambda: _signing(fleet))
        yield _tried("writing", lambda: _writing(store))


def _tried(name: str, work: Callable[[], str]) -> Check:
    try:
        return Check(name, True, work())
    except (RemoteError, CacheError) as error:
        return Check(name, False, str(error))


def _keys(fleet: Fleet) -> str:
    ring = fleet.ring()
    if ring.unsigned:
        return "none needed: whoever can write to the remote is believed"
    valid = [k for k in ring.keys.values() if k.kid not in ring.revoked_kids]
    usable = [k for k in valid if not k.is_expired()]
    if not usable:
        raise CacheError("every key in the file has expired or is revoked")
    soon = [k.kid for k in usable if k.not_after and k.not_after - time.time() < _SOON_SECONDS]
    text = ", ".join(sorted(k.kid for k in usable))
    return text + (f"; these expire within 30 days: {', '.join(soon)}" if soon else "")


def _answer(store: RemoteStore) -> str:
    took = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        store.get(ENTRIES + os.urandom(32).hex())
        took.append((time.perf_counter() - began) * 1e3)
    limit = store.operation_seconds * 1e3
    typical = statistics.median(took)
    if typical > limit / 2:
        raise CacheError(
            f"{typical:.0f} ms, near the limit of {limit:.0f} ms (TILEOPS_REMOTE_TIMEOUT_SECONDS)"
        )
    return f"{typical:.1f} ms for a look-up (first {took[0]:.0f} ms, limit {limit:.0f} ms)"


def _eviction(store: RedisStore) -> str:
    text = store.command("INFO", "memory")
    facts = text if isinstance(text, dict) else {}
    policy, most = str(facts.get("maxmemory_policy", "?")), int(facts.get("maxmemory", 0))
    if most and policy == "noeviction":
        raise CacheError("maxmemory is set and the policy is noeviction: use allkeys-lru")
    return f"{policy}, maxmemory {most or 'unlimited'}"


def _signing(fleet: Fleet) -> str:
    signer = fleet.signer()
    return "unsigned" if signer is None else f"with {signer.kid} ({signer.alg})"


def _writing(store: RemoteStore) -> str:
    name = f"{LEASES}doctor-{os.urandom(8).hex()}"
    try:
        if not store.create(name, b"doctor"):
            raise CacheError("a new name is said to exist already")
        if store.create(name, b"doctor"):
            raise CacheError("the store creates a name twice: leases cannot work")
        if store.get(name) != b"doctor":
            raise CacheError("what was written does not come back")
    finally:
        store.delete(name)
    return "creates once, reads back, removes"
