"""The store: entries by key, in memory, in read-only layers and in the private directory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tileops import counters, forks, log, settings
from tileops.cache import aliases, staging, usage
from tileops.cache.directory import Directory, Resolved, here
from tileops.cache.entry import (
    Built,
    DamagedError,
    Entry,
    new_entry,
    read_entry,
    read_head,
    write_entry,
)
from tileops.cache.files import make_directories, remove, sync_directory, tree_bytes
from tileops.cache.key import Key
from tileops.cache.locks import alone


class Store:
    """Compiled programs by key, in the directories that the settings name at each call.

    No method raises for a fault of the file system: what cannot be stored lives in memory, what
    cannot be read is a miss, and the first trouble is one warning.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Entry] = {}
        self._users = usage.Users()
        self._cleaned: set[Path] = set()
        forks.renew_in_child(self)

    def get(self, key: Key, hit: Callable[[str], None] | None = None) -> Entry | None:
        """The verified entry of ``key``, or None; ``hit`` is told ``memory`` or ``disk``."""
        found = self.find(key, hit)
        if found is None:
            counters.add("misses")
        return found

    def find(self, key: Key, hit: Callable[[str], None] | None = None) -> Entry | None:
        """As ``get``, and no miss is counted: for one of several places to look into."""
        return self._look(key, here(), hit)

    def find_alike(
        self, identity: str, serves: Callable[[Entry], bool] = lambda entry: True
    ) -> Entry | None:
        """A verified entry of this identity that ``serves``, whatever compiler made it; or None.

        The last used one of the first place that has one: memory, the layers, the private
        directory.
        """
        where = here()
        for entry in self.used():
            if entry.identity == identity and serves(entry):
                counters.add("memory_hits")
                return self._follow(entry, where)
        with counters.timed("lookup"):
            found = self._read_alike(identity, serves, where)
        if found is not None:
            counters.add("disk_hits")
            with forks.guard:
                self._memory[found.hash] = found
        return found

    def put(self, key: Key, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> Entry:
        """Publish files and manifest under ``key``; InternalError for unusable names."""
        return self._publish(key, Built(files, manifest), here())

    def add(self, entry: Entry) -> Entry:
        """Publish an entry that came from elsewhere and was verified."""
        return self._keep_copy(dataclasses.replace(entry, path=None), here())

    def fetch(
        self, key: Key, build: Callable[[], Built], hit: Callable[[str], None] | None = None
    ) -> Entry:
        """The entry of ``key``, from ``build()`` if it is nowhere; ``hit`` as in ``get``.

        Of the threads and processes that ask at a time one calls ``build``; if it raises, the next.
        """
        current = settings.current()
        where = here()
        found = self._look(key, where, hit)
        if found is not None:
            return found
        locks = where.private.locks if where.private is not None else None
        with alone(key.hash(), locks, current.cache_lock_seconds) as problem:
            if problem is not None:
                _trouble(f"compiling without the lock: {problem}")
            found = self._look(key, where, hit)
            if found is not None:
                return found
            if current.remote is None:
                counters.add("misses")
                return self._publish(key, build(), where)
            # Imported where there is a remote and something is missing.
            from tileops.cache.remote import flight

            publish = partial(self._publish, key, where=where)
            return flight.obtained(key, build, publish, partial(self._keep_copy, where=where), hit)

    def remove(self, key: Key) -> None:
        """Forget the entry of ``key``, and take it out of the private directory."""
        where = here()
        with forks.guard:
            self._memory.pop(key.hash(), None)
        if where.private is not None:
            usage.discard(where.private, where.private.programs / key.hash())

    def remove_all(self, is_meant: Callable[[Key | None], bool]) -> None:
        """``remove`` each entry whose key ``is_meant``; a damaged one is asked for as None."""
        for key in filter(is_meant, [entry.key for entry in self.used()]):
            self.remove(key)
        directory = here().private
        if directory is None:
            return
        for stored in usage.stored_entries(directory):
            found: Key | None = None
            with suppress(DamagedError, OSError):
                found, _ = read_head(stored.path, directory.trust)
            if is_meant(found):
                usage.discard(directory, stored.path)

    def used(self) -> list[Entry]:
        """The entries that this process has read or made."""
        with forks.guard:
            return list(self._memory.values())

    def clear_memory(self) -> None:
        """Forget the entries in memory."""
        with forks.guard:
            self._memory.clear()

    def renew(self) -> None:
        """A child notes by itself which entries it uses: see ``forks.renew_in_child``."""
        self._users = usage.Users(self._users)

    def _look(self, key: Key, where: Resolved, hit: Callable[[str], None] | None) -> Entry | None:
        with forks.guard:
            found = self._memory.get(key.hash())
        if found is not None:
            counters.add("memory_hits")
            if hit is not None:
                hit("memory")
            return self._follow(found, where)
        with counters.timed("lookup"):
            found = self._read(key, where)
        if found is not None:
            counters.add("disk_hits")
            if hit is not None:
                hit("disk")
            with forks.guard:
                self._memory[found.hash] = found
        return found

    def _follow(self, entry: Entry, where: Resolved) -> Entry:
        # A user who names a directory after the first compile expects to find the program there,
        # and one may delete a directory at any time.
        if entry.path is None:
            return entry
        places = {directory.programs: directory for directory in where}
        place = places.get(entry.path.parent)
        if (place is not None or where.private is None) and entry.is_on_disk():
            if place is not None:
                self._note_use(place, entry.hash, entry.path)
            return entry
        return self._keep(dataclasses.replace(entry, path=None), where)

    def _read(self, key: Key, where: Resolved) -> Entry | None:
        _report(where)
        for directory in where:
            found = self._read_from(directory, key.hash())
            if found is not None:
                return found
        return None

    def _read_from(self, directory: Directory, entry_hash: str) -> Entry | None:
        folder = directory.programs / entry_hash
        try:
            self._note_use(directory, entry_hash, folder)
            return read_entry(folder, directory.trust, entry_hash)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            if os.path.lexists(folder):  # else it was taken out while it was read
                log.warn_once(f"damaged:{folder}", f"damaged cache entry, passed over: {error}")
        except OSError as error:
            _trouble(f"cannot read {folder}: {error}")
        return None

    def _read_alike(
        self, identity: str, serves: Callable[[Entry], bool], where: Resolved
    ) -> Entry | None:
        _report(where)
        for directory in where:
            for entry_hash in aliases.entries_of(directory, identity):
                found = self._read_from(directory, entry_hash)
                # An alias is a claim: the entry itself says what it is.
                if found is not None and found.identity == identity and serves(found):
                    return found
        return None

    def _note_use(self, directory: Directory, entry_hash: str, folder: Path) -> None:
        # Before the first byte is read: eviction must not take the entry from under the reader.
        if not directory.writable or not os.path.lexists(folder):
            return
        with suppress(OSError):  # a read-only directory: nothing is evicted from it either
            self._users.note(directory, entry_hash)
            os.utime(folder)

    def _publish(self, key: Key, built: Built, where: Resolved) -> Entry:
        return self._keep(new_entry(key, built, settings.current().cache_keep), where)

    def _keep_copy(self, entry: Entry, where: Resolved) -> Entry:
        # Waiting for the disk is most of the time of a read from a remote, 15 of 20 ms, and a copy
        # that a power failure damages is fetched again.
        return self._keep(entry, where, durable=False)

    def _keep(self, entry: Entry, where: Resolved, *, durable: bool = True) -> Entry:
        if where.private is not None:
            with counters.timed("store"):
                entry = self._store(entry, where.private, durable)
        with forks.guard:
            self._memory[entry.hash] = entry
        return entry

    def _store(self, entry: Entry, directory: Directory, durable: bool) -> Entry:
        try:
            try:
                self._place(entry, directory, durable)
            except FileNotFoundError:
                # Somebody cleared the cache meanwhile, staging included; not again at once.
                self._place(entry, directory, durable)
        except OSError as error:
            _trouble(f"cannot store in {directory.root}: {error}")
            return entry
        try:
            aliases.add(directory, entry.identity, entry.hash)
        except OSError as error:
            _trouble(f"cannot make an alias in {directory.aliases}: {error}")
        final = directory.programs / entry.hash
        self._keep_bounded(final, entry, directory)
        return dataclasses.replace(entry, path=final)

    def _place(self, entry: Entry, directory: Directory, durable: bool) -> None:
        stage = staging.fresh(directory, entry.hash[:12])
        try:
            make_directories(directory.programs)
            write_entry(stage, entry, durable=durable)
            if not usage.put_in_place(stage, directory, entry.hash):
                remove(stage)  # another process was faster; its entry is as good
            elif durable:
                sync_directory(directory.programs)
        except OSError:
            remove(stage)
            raise

    def _keep_bounded(self, final: Path, entry: Entry, directory: Directory) -> None:
        limit = settings.current().cache_limit
        try:
            self._users.note(directory, entry.hash)
            if directory.root not in self._cleaned:
                self._cleaned.add(directory.root)
                staging.sweep(directory)
            if limit is None:
                return
            estimate = usage.add_size(directory, tree_bytes(final))
            if estimate is None or estimate > limit:
                usage.make_room(directory, limit, frozenset({entry.hash}))
        except OSError as error:
            _trouble(f"cannot keep {directory.root} under its limit: {error}")


def _report(where: Resolved) -> None:
    if where.problem is not None:
        _trouble(f"keeping compiled programs in memory: {where.problem}")


def _trouble(message: str) -> None:
    # One key for all: a broken disk gives one warning, not one per compile.
    log.warn_once("cache", f"tileops cache: {message}")


_store: Store | None = None


def store() -> Store:
    """The store of this process."""
    global _store
    with forks.guard:
        if _store is None:
            _store = Store()
        return _store
