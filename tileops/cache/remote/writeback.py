"""What was compiled goes to the remote in the background, and leases are kept until it is there.

One daemon thread a process signs, writes, renews and releases. Its queue is bounded: what does not
fit is counted and dropped, for another machine will compile it too.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tileops import counters, log
from tileops.cache import envelope
from tileops.cache.entry import DamagedError, Entry
from tileops.cache.envelope import Alias, UntrustedEnvelopeError
from tileops.cache.identity import identity
from tileops.cache.remote.stores import ALIASES, ENTRIES, Lease, RemoteError, RemoteStore
from tileops.errors import CacheError

if TYPE_CHECKING:
    from tileops.cache.remote.fleet import Fleet

MOST_ENTRIES, MOST_BYTES = 64, 64 << 20
FLUSH_SECONDS = 2.0


@dataclass(frozen=True)
class _Job:
    entry: Entry | None  # to write
    lease: Lease | None  # to release then

    @property
    def size(self) -> int:
        return 0 if self.entry is None else sum(map(len, self.entry.files.values()))


class WriteBack:
    """The queue and its thread, which starts with the first job."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._bytes = 0
        self._is_busy = False
        self._leases: dict[Lease, float] = {}  # to the moment of their next renewal
        self._thread: threading.Thread | None = None

    @property
    def length(self) -> int:
        """How many entries wait."""
        return sum(job.entry is not None for job in tuple(self._jobs))

    def hold(self, lease: Lease) -> None:
        """Renew ``lease`` until it is released."""
        with self._changed:
            self._leases[lease] = time.monotonic() + self._renewal_seconds
        self._wake()

    def put(self, entry: Entry, lease: Lease | None) -> None:
        """Write ``entry`` some time soon, then release ``lease``."""
        job = _Job(envelope.travelling(entry), lease)
        with self._changed:
            fits = self.length < MOST_ENTRIES and self._bytes + job.size <= MOST_BYTES
            if fits:
                self._jobs.append(job)
                self._bytes += job.size
        if fits:
            self._wake()
            return
        counters.add("remote_dropped")
        if lease is not None:
            self.release(lease)

    def release(self, lease: Lease) -> None:
        """Give ``lease`` back: its program was not compiled, or is there already."""
        with self._changed:
            self._jobs.append(_Job(None, lease))
        self._wake()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until the queue is empty; False if it is not after ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._is_busy, seconds)

    @property
    def _renewal_seconds(self) -> float:
        return self._fleet.config.lease_seconds / 3

    # -- the thread --------------------------------------------------------------------------------
    def _wake(self) -> None:
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tileops-write-back", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter ends
                    counters.add("remote_dropped", len(self._jobs))
                    self._jobs.clear()
                    self._bytes = 0
                    return
                self._thread = thread
                _flush_at_exit(self)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                now = time.monotonic()
                while not self._jobs and not self._due(now):
                    self._changed.wait(self._pause(now))
                    now = time.monotonic()
                due = self._due(now)
                job = self._jobs.popleft() if self._jobs else None
                self._bytes -= 0 if job is None else job.size
                self._is_busy = job is not None
            try:
                for lease in due:
                    self._renew(lease)
                if job is not None:
                    self._do(job)
            except Exception as error:  # a warning that the user made an error, say
                log.emit("cache", f"remote: {type(error).__name__}: {error!s:.200}")

    def _due(self, now: float) -> list[Lease]:
        return [lease for lease, moment in self._leases.items() if moment <= now]

    def _pause(self, now: float) -> float | None:
        return min((moment - now for moment in self._leases.values()), default=None)

    def _renew(self, lease: Lease) -> None:
        with self._changed:
            if lease in self._leases:
                self._leases[lease] = time.monotonic() + self._renewal_seconds
        with suppress(RemoteError, CacheError):  # then it ends, and another machine may take it
            self._bounded(lambda _: lease.renew())

    def _do(self, job: _Job) -> None:
        if job.entry is not None:
            try:
                self.write(job.entry)
                counters.add("remote_puts")
            except (RemoteError, CacheError, DamagedError) as error:
                counters.add("remote_dropped")
                self._fleet.warn("put", f"cannot write {job.entry.hash[:12]}: {error}")
        lease = job.lease
        if lease is not None:
            with self._changed:
                self._leases.pop(lease, None)
            with suppress(RemoteError, CacheError):  # it ends by itself
                self._bounded(lambda _: lease.release())

    def write(self, entry: Entry) -> None:
        """Sign and write an entry and the pointer to it, now. RemoteError and others."""
        signer = self._fleet.signer()
        blob = envelope.pack(envelope.travelling(entry), signer, provenance())
        self._bounded(lambda store: store.put(ENTRIES + entry.hash, blob))
        name = identity(entry.key.fields)
        alias = Alias(name, entry.hash, entry.key.fields["toolchain"])
        pointer = envelope.pack_alias(alias, signer)
        if not self._bounded(lambda store: store.create(ALIASES + name, pointer)):
            self._bounded(lambda store: self._mend(store, name, pointer))

    def _mend(self, store: RemoteStore, name: str, pointer: bytes) -> None:
        """Put ``pointer`` in the place of one that leads nowhere."""
        there = store.get(ALIASES + name)
        try:
            if there is not None:
                key = envelope.unpack_alias(there, name, self._fleet.ring()).key
                if store.get(ENTRIES + key) is not None:
                    return
        except (DamagedError, UntrustedEnvelopeError):
            store.put(ALIASES + name, pointer)
            return
        store.put(ALIASES + name, pointer)

    def _bounded(self, work: Callable[[RemoteStore], object]) -> object:
        store = self._fleet.store(in_background=True)
        return self._fleet.bounded(lambda: work(store), store.operation_seconds, store)


@functools.cache
def provenance() -> dict[str, str]:
    """Who made an entry: part of what is signed. No times, so that equal entries stay equal."""
    from importlib import metadata  # 10 ms, which a machine that only reads does not need

    try:
        return {"tileops": metadata.version("tileops-torch")}
    except metadata.PackageNotFoundError:
        return {"tileops": "not installed"}


def _flush_at_exit(write_back: WriteBack) -> None:
    # Before the pools of threads end, without which asyncio resolves no names: those hooks run
    # before atexit's, in the reverse order of their registration.
    register = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):  # the interpreter ends already
        register(_flush_here, write_back, _process())


def _process() -> int:
    import os

    return os.getpid()


def _flush_here(write_back: WriteBack, process: int) -> None:
    if process == _process():  # a forked child has none of the parent's threads
        write_back.flush()
