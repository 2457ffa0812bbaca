"""Locks by key: one compile or tuning of a key at a time, across threads and processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from tileops import forks
from tileops.cache.files import make_directories

# A lock lives as long as some thread holds it or waits for it.
_locks: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()


@contextmanager
def alone(name: str, folder: Path | None, seconds: float) -> Iterator[str | None]:
    """Hold the lock of ``name``; yields None, or why it is not held after ``seconds``.

    ``name`` is the hash of a program's key, or ``t`` and the hash of a tuning's.

    ``folder`` has the lock files, None is for threads only. The kernel frees a dead holder's.
    """
    deadline = time.monotonic() + seconds
    with forks.guard:
        lock = _locks.setdefault(name, forks.renewed_lock())
    if not lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
        yield f"waited {seconds:g} s for another thread"
        return
    with ExitStack() as stack:
        stack.callback(lock.release)
        problem = None
        # 4,096 files and not one a key: a lock file can never be removed safely while others may be
        # about to open it. Two keys that share one only wait.
        try:
            if folder is not None:
                make_directories(folder)
                left = max(0.0, deadline - time.monotonic())
                stack.enter_context(file_lock(folder / f"{name[:3]}.lock", left))
        except TimeoutError as error:
            problem = str(error)
        except OSError as error:
            problem = f"no lock in {folder}: {error}"
        yield problem


@contextmanager
def file_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock file ``path``; TimeoutError after ``seconds``, OSError if that cannot be."""
    # Imported where something is written: a warm start does not need it, and it costs 15 ms.
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o644, thread_local=False)
    try:
        lock.acquire(timeout=seconds, poll_interval=0.02)
    except Timeout:
        raise TimeoutError(f"waited {seconds:.0f} s for another process") from None
    except NotImplementedError as error:
        raise OSError(str(error)) from None
    try:
        yield
    finally:
        with suppress(OSError):
            lock.release()
