"""What commands do with a remote: write, fetch, check and trim it, with time to wait."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tileops.cache import envelope
from tileops.cache.entry import DamagedError, Entry
from tileops.cache.envelope import UntrustedEnvelopeError
from tileops.cache.identity import identity
from tileops.cache.remote.fleet import Fleet
from tileops.cache.remote.folder_store import FolderStore
from tileops.cache.remote.opening import open_store
from tileops.cache.remote.stores import (
    ALIASES,
    COMMAND_BOUNDS,
    ENTRIES,
    LEASES,
    Item,
    shown,
)
from tileops.cache.remote.writeback import provenance
from tileops.errors import CacheError

_LEASE_SECONDS = 3600.0  # a lease that is older ended long ago


@dataclass(frozen=True)
class Checked:
    """One object: what is wrong with it, or None, and what it is."""

    name: str
    problem: str | None
    says: str = ""


class Upkeep:
    """A remote in the hands of a person. Methods raise RemoteError, and errors of envelopes."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.store = open_store(fleet.config.url, COMMAND_BOUNDS)
        self.shown = shown(fleet.config.url)

    def items(self, prefix: str) -> list[Item]:
        """What is below a prefix."""
        return list(self.store.items(prefix))

    def names(self, prefixes: Iterable[str]) -> list[str]:
        """The hashes of entries, all or those that begin with one of ``prefixes``; CacheError."""
        every = sorted(item.name.removeprefix(ENTRIES) for item in self.items(ENTRIES))
        chosen = list(prefixes)
        if not chosen:
            return every
        found: dict[str, None] = {}
        for prefix in chosen:
            matching = [name for name in every if name.startswith(prefix)]
            if len(matching) != 1:
                raise CacheError(f"{prefix}: {len(matching)} entries in {self.shown}")
            found[matching[0]] = None
        return list(found)

    def fetch(self, name: str) -> Entry:
        """The verified entry of a hash."""
        blob = self.store.get(ENTRIES + name)
        if blob is None:
            raise DamagedError("gone meanwhile")
        return envelope.unpack(blob, name, self.fleet.ring())

    def push(self, entry: Entry) -> bool:
        """Write an entry and the pointer to it; False if they are there and trusted."""
        ring, signer = self.fleet.ring(), self.fleet.signer()
        alike = identity(entry.key.fields)
        alias = envelope.Alias(alike, entry.hash, entry.key.fields["toolchain"])
        is_there = self._is_entry(entry.hash)
        if not is_there:
            blob = envelope.pack(envelope.travelling(entry), signer, provenance())
            envelope.unpack(blob, entry.hash, ring)  # else nobody with these keys could read it
            self.store.put(ENTRIES + entry.hash, blob)
        if not self._leads_somewhere(alike):
            self.store.put(ALIASES + alike, envelope.pack_alias(alias, signer))
        return not is_there

    def _is_entry(self, name: str) -> bool:
        blob = self.store.get(ENTRIES + name)
        return blob is not None and self._problem_of_entry(name, blob)[0] is None

    def _leads_somewhere(self, alike: str) -> bool:
        blob = self.store.get(ALIASES + alike)
        return blob is not None and self._problem_of_pointer(alike, blob)[0] is None

    def _problem_of_entry(self, name: str, blob: bytes) -> tuple[str | None, str]:
        try:
            entry = envelope.unpack(blob, name, self.fleet.ring())
        except (DamagedError, UntrustedEnvelopeError) as error:
            return str(error), ""
        signed = ", ".join(envelope.kids_of(blob)) or "nobody"
        return None, f"{entry.manifest.get('name', '?')} {entry.key.fields['target']} by {signed}"

    def _problem_of_pointer(self, name: str, blob: bytes) -> tuple[str | None, str]:
        try:
            alias = envelope.unpack_alias(blob, name, self.fleet.ring())
        except (DamagedError, UntrustedEnvelopeError) as error:
            return str(error), ""
        if self.store.get(ENTRIES + alias.key) is None:
            return f"leads to {alias.key[:12]}, which is not there", ""
        return None, f"to {alias.key[:12]}"

    def verify(self) -> Iterator[Checked]:
        """Each entry and pointer, fetched and checked."""
        kinds = ((ENTRIES, self._problem_of_entry), (ALIASES, self._problem_of_pointer))
        for prefix, check in kinds:
            for item in self.items(prefix):
                blob = self.store.get(item.name)
                if blob is not None:
                    yield Checked(item.name, *check(item.name.removeprefix(prefix), blob))

    def prune(self, days: float | None, limit: int | None) -> list[str]:
        """Remove entries unused for ``days`` and the least recently used past ``limit`` bytes.

        Then pointers that lead nowhere, and leases that ended. Returns all names.
        """
        removed: list[str] = []
        entries = sorted(self.items(ENTRIES), key=lambda item: (item.used_at, item.name))
        total, now = sum(item.size for item in entries), time.time()
        for item in entries:
            is_old = days is not None and now - item.used_at > days * 86400
            if is_old or (limit is not None and total > limit):
                total -= item.size
                removed.append(item.name)
        gone = {name.removeprefix(ENTRIES) for name in removed}
        for item in self.items(ALIASES):
            name = item.name.removeprefix(ALIASES)
            blob = self.store.get(item.name)
            if blob is None:
                continue
            try:
                key = envelope.unpack_alias(blob, name, self.fleet.ring()).key
            except (DamagedError, UntrustedEnvelopeError):
                continue  # `verify --repair` removes these
            if key in gone or self.store.get(ENTRIES + key) is None:
                removed.append(item.name)
        removed += [i.name for i in self.items(LEASES) if now - i.used_at > _LEASE_SECONDS]
        for name in removed:
            self.store.delete(name)
        if isinstance(self.store, FolderStore):
            self.store.sweep(now - _LEASE_SECONDS)
        return removed
