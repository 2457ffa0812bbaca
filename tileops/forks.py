"""Locks and state that a forked child finds whole: no lock of a gone thread, no half state.

A fork copies memory and one thread. What the other threads were in the middle of stays half done in
the child, and what they had locked stays locked. So there are two kinds of lock here and no others
(tests/architecture/test_locks.py lists every lock of the package):

- ``guard``, one lock for all state of the process that several statements change: tables of ops,
  names, settings, counters. A fork takes it, so the child finds that state whole. Under it nothing
  is waited for: no other lock, no import, no file, no code of the user. Torch's registration of an
  op is under it too.
- ``renewed_lock()``, for what takes long or runs code of the user: a trace, a compile, a
  measurement, a file. A fork does not wait for such work, and the child gets the lock anew. Its
  holder must leave state whole at each step: results are put in place by one statement, or under
  ``guard``, which may be taken under such a lock (never the other way round).

The locks of the C++ runtime follow the same rules (csrc/core/forks.h).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from importlib import _bootstrap
from typing import Any, Generic, Protocol, TypeVar, overload

# What a first call imports; importlib's metadata tell what signs an entry which version it is.
_IMPORTED_LATE = frozenset({"tileops", "filelock", "importlib", "triton"}) | {
    "redis", "fsspec", "s3fs", "gcsfs", "aiobotocore", "aiohttp", "botocore", "cryptography"
}  # fmt: skip
# The import system's own table of the modules that some thread is importing, by name.
_module_locks: dict[str, Callable[[], Any]] = getattr(_bootstrap, "_module_locks", {})
# What is under the guard takes microseconds, the registration of an op a millisecond. A fork that
# has waited this long finds a thread that will not come back, and goes on.
_LONGEST_WAIT_SECONDS = 10.0

_Self = TypeVar("_Self")
_Value = TypeVar("_Value")

guard = threading.RLock()
_fork = threading.local()  # has_guard: whether this thread's fork has taken the guard
_renewed: weakref.WeakSet[Any] = weakref.WeakSet()


class Renewed(Protocol):
    """Something that belongs to one process: a child that it is copied into needs its own."""

    def renew(self) -> None:
        """Called in each child, before anything else can run there."""


_owners: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renewed_lock() -> threading.RLock:
    """A lock for long work: free in a child, unless the thread that forked holds it itself."""
    lock = threading.RLock()
    _renewed.add(lock)
    return lock


def renew_in_child(owner: Renewed) -> None:
    """Renew ``owner`` in every child that this process forks, while it lives."""
    _owners.add(owner)


def is_held_here(lock: threading.RLock) -> bool:
    """Whether the calling thread holds ``lock``."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


class ComputedOnce(Generic[_Self, _Value]):
    """A property that is computed at its first use and then kept in the object's ``__dict__``.

    As ``functools.cached_property``, which before Python 3.12 holds one lock of the class for all
    objects while it computes. Two threads may both compute; all get what the first one kept.
    """

    def __init__(self, compute: Callable[[_Self], _Value]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type[_Self]) -> ComputedOnce[_Self, _Value]: ...
    @overload
    def __get__(self, instance: _Self, owner: type[_Self]) -> _Value: ...
    def __get__(self, instance: _Self | None, owner: type[_Self]) -> object:
        if instance is None:
            return self
        return vars(instance).setdefault(self._name, self._compute(instance))


# -- other programs ------------------------------------------------------------------------------
def start_process(arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:  # noqa: ANN401
    """``subprocess.Popen``, of whose pipes a child that is forked meanwhile keeps no writing end.

    The reader here would wait as long as that child lives.
    """
    with guard:  # until the program has started, which takes milliseconds
        return subprocess.Popen(arguments, **options)


def run_process(
    arguments: Sequence[str],
    *,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,  # noqa: ANN401
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` by way of ``start_process``."""
    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with start_process(arguments, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments, out, err)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def output_of_process(arguments: Sequence[str], **options: Any) -> Any:  # noqa: ANN401
    """``subprocess.check_output`` by way of ``start_process``."""
    return run_process(arguments, stdout=subprocess.PIPE, check=True, **options).stdout


# -- the hooks ---------------------------------------------------------------------------------
def _before() -> None:
    _fork.has_guard = False
    _fork.has_guard = guard.acquire(timeout=_LONGEST_WAIT_SECONDS)


def _in_parent() -> None:
    if _fork.has_guard:
        guard.release()


def _in_child() -> None:
    if _fork.has_guard:
        guard.release()
    else:
        guard._at_fork_reinit()  # type: ignore[attr-defined]
    _forget_unfinished_imports()
    for lock in tuple(_renewed):
        if not is_held_here(lock):
            lock._at_fork_reinit()
    for owner in tuple(_owners):
        owner.renew()


def _forget_unfinished_imports() -> None:
    """Let the child import anew what a thread was importing for a first call.

    CPython renews its import system's one lock in a child, and not the locks of the modules: a
    thread that is gone would hold those for ever. Waiting for it before the fork does not help:
    filelock's import waits for the fork itself.
    """
    own = threading.get_ident()
    held = {}
    for name, reference in tuple(_module_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner not in (None, own):
            held[name] = owner
    gone = {owner for name, owner in held.items() if name.partition(".")[0] in _IMPORTED_LATE}
    for name, owner in held.items():
        if owner in gone:
            _module_locks.pop(name, None)
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                del sys.modules[name]


# At import: a lock may be taken, and this process forked, from now on.
os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
