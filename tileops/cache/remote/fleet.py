"""The remote that the settings name: look-ups that are bounded and verified, and what signs."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from tileops import counters, forks, log, settings
from tileops.cache import envelope, keys
from tileops.cache.entry import DamagedError, Entry
from tileops.cache.envelope import UntrustedEnvelopeError
from tileops.cache.files import Trust
from tileops.cache.identity import identity as identity_of
from tileops.cache.keys import Keyring, SigningKey
from tileops.cache.remote.breaker import Breaker
from tileops.cache.remote.opening import open_store
from tileops.cache.remote.stores import (
    ALIASES,
    BACKGROUND_BOUNDS,
    ENTRIES,
    Bounds,
    Lease,
    RefusedError,
    RemoteError,
    RemoteStore,
    UnavailableError,
    shown,
    within,
)
from tileops.cache.remote.writeback import WriteBack
from tileops.errors import CacheError

_T = TypeVar("_T")
_NOT_YET = "not asked again yet after a failure"
MISS_SECONDS = 1.0  # the most that a miss waits for a remote, besides a lease


@dataclass(frozen=True)
class Config:
    """What the settings say of the remote."""

    url: str
    writes: bool
    keys: str | None
    sign: str | None
    unsigned: bool
    lease_seconds: float
    timeout: float | None
    trust_shared: bool


@dataclass(frozen=True)
class Answer:
    """What a remote said: ``hit``, ``miss``, or why what it sent counts for nothing.

    ``result`` is also ``damaged``, ``untrusted``, ``unavailable`` or ``refused``; ``why`` in words.
    """

    result: str
    entry: Entry | None = None
    why: str = ""


class Budget:
    """The time that one miss may spend on a remote."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; 0 or less if it is spent."""
        return self._end - time.monotonic()


class Fleet:
    """One remote. No method raises for a fault of the remote, of its keys or of its client."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.breaker = Breaker()
        self.write_back = WriteBack(self)
        self._lock = forks.renewed_lock()
        self._stores: dict[bool, RemoteStore] = {}
        self._ring: tuple[object, Keyring] | None = None

    # -- what the remote is ----------------------------------------------------------------------
    def store(self, *, in_background: bool = False) -> RemoteStore:
        """The client; CacheError if it cannot be had, UnavailableError if not now."""
        with self._lock:
            if in_background not in self._stores:
                self._stores[in_background] = self._opened(in_background)
            return self._stores[in_background]

    def _opened(self, in_background: bool) -> RemoteStore:
        if not self.breaker.allows():
            raise UnavailableError(_NOT_YET)
        try:
            store = open_store(self.config.url, self._bounds(in_background))
        except UnavailableError:
            self.breaker.failed()
            raise
        self.breaker.succeeded()
        return store

    def _bounds(self, in_background: bool) -> Bounds | None:
        given = self.config.timeout
        if in_background:
            bounds = BACKGROUND_BOUNDS
            return (
                bounds if given is None else Bounds(*(max(given, s) for s in vars(bounds).values()))
            )
        return None if given is None else Bounds(given, given)

    def budget(self) -> Budget:
        """The time for one miss from now on."""
        return Budget(max(MISS_SECONDS, 2 * (self.config.timeout or 0)))

    def ring(self) -> Keyring:
        """The keys of this moment, read again when their file changes; CacheError if unusable."""
        path, unsigned = self.config.keys, self.config.unsigned
        if path is None:
            if unsigned:
                return Keyring(unsigned=True)
            raise CacheError(
                "no keys: name a keys file (TILEOPS_REMOTE_KEYS), or trust whoever can write there "
                "(TILEOPS_REMOTE_UNSIGNED=1)"
            )
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            raise CacheError(f"the keys file {path}: {error.strerror}") from None
        found = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._ring is None or self._ring[0] != found:
            ring = keys.load(path, Trust(shared=self.config.trust_shared), unsigned=unsigned)
            if not keys.is_usable(ring):
                raise CacheError(keys.MISSING)
            self._ring = (found, ring)
        return self._ring[1]

    def signer(self) -> SigningKey | None:
        """What signs here, None where nothing needs to; CacheError if nothing can."""
        return self.ring().signer(self.config.sign)

    def writes(self) -> bool:
        """True if what is compiled here goes to the remote."""
        if not self.config.writes:
            return False
        try:
            self.signer()
        except CacheError as error:
            self.warn("sign", f"nothing is written to it: {error}")
            return False
        return True

    def warn(self, topic: str, text: str) -> None:
        """One warning for each topic in the life of the process, and a line in the log."""
        message = f"remote {shown(self.config.url)}: {text}"
        log.emit("cache", message)
        log.warn_once(f"remote:{topic}:{self.config.url}", message)

    # -- bounded operations ------------------------------------------------------------------------
    def prepare(self) -> None:
        """Import what asking takes, which no budget counts: it is work of this machine, and once.

        A busy machine takes long for it, and would take longer to compile.
        """
        with suppress(CacheError, UnavailableError):  # the look-up says it
            self.ring()
            self.store()

    def ask(self, operation: Callable[[RemoteStore], _T], budget: Budget) -> _T:
        """What ``operation`` gives; RemoteError at once while the breaker is open, else bounded."""
        store = self.store()
        seconds = min(store.operation_seconds, budget.left)
        return self.bounded(lambda: operation(store), seconds, store)

    def bounded(self, work: Callable[[], _T], seconds: float, store: RemoteStore) -> _T:
        """What ``work`` gives within ``seconds``; the breaker learns how it went. RemoteError."""
        if seconds <= 0:
            raise UnavailableError("no time left for it")
        if not self.breaker.allows():
            raise UnavailableError(_NOT_YET)
        try:
            result = within(seconds, work)
        except UnavailableError as error:
            self.breaker.failed()
            store.abandon()
            self.warn("down", f"{error}; calls go on without it")
            raise
        except RefusedError:
            self.breaker.succeeded()
            raise
        self.breaker.succeeded()
        return result

    # -- look-ups ----------------------------------------------------------------------------------
    def look_up(self, entry_hash: str, budget: Budget, *, again: bool = False) -> Answer:
        """The verified entry of a key's hash, or why there is none; ``again`` counts hits alone."""
        answer = self._guarded(
            ENTRIES + entry_hash, budget, functools.partial(self._entry_of, entry_hash)
        )
        if not again or answer.result == "hit":
            counters.add(_COUNTED[answer.result])
        return answer

    def look_up_alike(self, identity: str, budget: Budget) -> Answer:
        """The verified entry to which the pointer of ``identity`` leads, or why there is none."""
        found: list[envelope.Alias] = []

        def pointer(blob: bytes) -> None:
            found.append(envelope.unpack_alias(blob, identity, self.ring()))

        answer = self._guarded(ALIASES + identity, budget, pointer)
        if not found:
            counters.add(_COUNTED[answer.result])
            return answer
        answer = self.look_up(found[0].key, budget)
        if answer.entry is not None and identity_of(answer.entry.key.fields) != identity:
            return Answer("untrusted", None, "a pointer to an entry of another identity")
        return answer

    def _entry_of(self, entry_hash: str, blob: bytes) -> Entry:
        return envelope.unpack(blob, entry_hash, self.ring())

    def _guarded(self, name: str, budget: Budget, read: Callable[[bytes], Entry | None]) -> Answer:
        try:
            self.ring()  # without keys nothing is asked
            blob = self.ask(lambda store: store.get(name), budget)
            if blob is None:
                return Answer("miss")
            return Answer("hit", read(blob))
        except UnavailableError as error:
            return Answer("unavailable", None, f"remote unavailable: {error}")
        except (RefusedError, CacheError) as error:
            self.warn("refused", str(error))
            return Answer("refused", None, f"remote refused: {error}")
        except UntrustedEnvelopeError as error:
            self.warn(f"untrusted:{error}", f"{name}: {error}; passed over")
            return Answer("untrusted", None, f"remote untrusted: {error}")
        except DamagedError as error:
            self.warn("damaged", f"{name} is damaged, passed over: {error}")
            return Answer("damaged", None, f"remote damaged: {error}")

    def lease(self, entry_hash: str, budget: Budget) -> Lease | None:
        """The lease of a key, renewed from now on; None if another holds it. RemoteError."""
        lease = self.store().lease(entry_hash, self.config.lease_seconds)
        if not self.ask(lambda _: lease.acquire(), budget):
            return None
        self.write_back.hold(lease)
        return lease


_COUNTED = {
    "hit": "remote_hits",
    "miss": "remote_misses",
    "damaged": "remote_damaged",
    "untrusted": "remote_untrusted",
    "unavailable": "remote_unavailable",
    "refused": "remote_unavailable",
}


class _Current:
    """The remote in use, one a process: a forked child makes its own."""

    def __init__(self) -> None:
        self.fleet: Fleet | None = None
        forks.renew_in_child(self)

    def renew(self) -> None:
        """Forget the parent's connections, queue and leases: see ``forks.renew_in_child``."""
        self.fleet = None
        client = sys.modules.get("fsspec.asyn")
        if client is not None:
            client.reset_lock()  # another thread may have been starting its loop


_current = _Current()


def config_of(now: settings.Settings) -> Config | None:
    """What the settings say of the remote, None if there is none."""
    if now.remote is None:
        return None
    return Config(
        now.remote,
        now.remote_mode == "readwrite",
        now.remote_keys,
        now.remote_sign,
        now.remote_unsigned,
        now.remote_lease_seconds,
        now.remote_timeout_seconds,
        now.cache_trust_shared,
    )


def current() -> Fleet | None:
    """The remote that the settings of this moment name, None if they name none."""
    config = config_of(settings.current())
    if config is None:
        return None
    with forks.guard:
        fleet = _current.fleet
        if fleet is None or fleet.config != config:
            fleet = _current.fleet = Fleet(config)
        return fleet


def state() -> dict[str, float]:
    """Gauges of the remote in use: whether its breaker is open, what waits to be written."""
    fleet = _current.fleet
    if fleet is None:
        return {"breaker": 0, "queue": 0}
    return {"breaker": int(fleet.breaker.is_open), "queue": fleet.write_back.length}


counters.set_gauges(state)

__all__ = ["Answer", "Budget", "Config", "Fleet", "RemoteError", "current", "state"]
