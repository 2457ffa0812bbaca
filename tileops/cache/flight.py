"""Owns the single flight: one compile of a key at a time, across threads and processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tileops import forks
from tileops.cache.files import make_directories

if TYPE_CHECKING:
    from filelock import FileLock


class _Slot:
    def __init__(self) -> None:
        self.lock = forks.renewed_lock()
        self.users = 0


class Flights:
    """Locks by key: first among the threads of this process, then among processes."""

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}

    @contextmanager
    def alone(self, name: str, folder: Path | None, seconds: float) -> Iterator[str | None]:
        """Hold the lock of ``name``, a hash, waiting at most ``seconds``.

        Yields None if it is held, otherwise why not: the caller then works without it. ``folder``
        is where lock files lie, None for threads only. The kernel frees a dead holder's lock.
        """
        deadline = time.monotonic() + seconds
        slot = self._enter(name)
        held = False
        try:
            held = slot.lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
            if not held:
                yield f"waited {seconds:g} s for another thread"
            elif folder is None:
                yield None
            else:
                lock, problem = _file_lock(folder, name, max(0.0, deadline - time.monotonic()))
                try:
                    yield problem
                finally:
                    if lock is not None:
                        with suppress(OSError):
                            lock.release()
        finally:
            if held:
                slot.lock.release()
            self._leave(name, slot)

    def _enter(self, name: str) -> _Slot:
        with forks.guard:
            slot = self._slots.setdefault(name, _Slot())
            slot.users += 1
            return slot

    def _leave(self, name: str, slot: _Slot) -> None:
        with forks.guard:
            slot.users -= 1
            if slot.users == 0 and self._slots.get(name) is slot:
                del self._slots[name]


def _file_lock(folder: Path, name: str, seconds: float) -> tuple[FileLock | None, str | None]:
    # 4,096 files and not one a key: a lock file can never be removed safely while others may be
    # about to open it, so their number is bounded instead. Two keys that share one only wait.
    # Imported where a compile is due: a warm start has no use for it, and it costs 15 ms.
    from filelock import FileLock, Timeout

    try:
        make_directories(folder)
        lock = FileLock(folder / f"{name[:3]}.lock", mode=0o644, thread_local=False)
        lock.acquire(timeout=seconds, poll_interval=0.02)
    except Timeout:
        return None, f"waited {seconds:.0f} s for another process"
    except (OSError, NotImplementedError) as error:
        return None, f"no lock in {folder}: {error}"
    return lock, None
