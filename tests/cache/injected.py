"""Faults of the file system, injected into every function of ``os`` and ``open`` under a folder."""

from __future__ import annotations

import builtins
import errno
import fcntl
import functools
import inspect
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

CODES = (
    errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EROFS, errno.ENOENT,
)  # fmt: skip

# Every function of os that takes a path or a descriptor, by what it does not: these ask for neither.
_OTHERS = frozenset(
    [
        "fspath",
        "fsencode",
        "fsdecode",
        "get_exec_path",
        "getcwd",
        "getcwdb",
        "getenv",
        "getenvb",
        "getpid",
        "getppid",
        "getuid",
        "geteuid",
        "getgid",
        "getegid",
        "urandom",
        "getrandom",
        "cpu_count",
        "sched_getaffinity",
        "register_at_fork",
        "fork",
        "_exit",
        "kill",
        "killpg",
        "wait",
        "waitpid",
        "pipe",
        "pipe2",
        "strerror",
        "umask",
        "times",
        "uname",
        "dup",
        "dup2",
        "abort",
        "memfd_create",
        "putenv",
        "unsetenv",
        "isatty",
        "get_terminal_size",
        "set_inheritable",
        "get_inheritable",
    ]
)


@dataclass(frozen=True)
class Call:
    """One call that reached the folder: its number, the function, and the path below the folder."""

    number: int
    name: str
    path: str


@functools.cache
def _watched() -> tuple[str, ...]:
    return tuple(
        name
        for name in dir(os)
        if inspect.isbuiltin(getattr(os, name)) and name not in _OTHERS and name[0] != "_"
    )


class Injector:
    """Raises OSError in the calls that ``fails`` picks, of those that touch ``root``."""

    def __init__(self, root: Path, fails: Callable[[Call], bool], code: int) -> None:
        self.root = os.path.realpath(root)
        self.fails = fails
        self.code = code
        self.calls: list[Call] = []
        self.raised: list[Call] = []
        self.warnings: list[str] = []
        self._guard = threading.Lock()
        self._readlink = os.readlink
        self._in = threading.local()

    @contextmanager
    def installed(self) -> Iterator[Injector]:
        real = {name: getattr(os, name) for name in _watched()}
        opened = self._wrapped("open()", builtins.open)
        try:
            for name, function in real.items():
                setattr(os, name, self._wrapped(name, function))
            with (
                mock.patch.object(builtins, "open", opened),
                mock.patch.object(io, "open", opened),
                mock.patch.object(fcntl, "flock", self._wrapped("flock", fcntl.flock)),
            ):
                yield self
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **more: Any) -> Any:
            path = (
                None if getattr(self._in, "side", False) else self._path_of((*args, *more.values()))
            )
            if path is None:
                return real(*args, **more)
            with self._guard:
                call = Call(len(self.calls), name, path)
                self.calls.append(call)
            if not self.fails(call):
                return real(*args, **more)
            self.raised.append(call)
            if name == "close":
                real(*args, **more)
            raise OSError(self.code, os.strerror(self.code), path)

        return faulty

    def _path_of(self, args: tuple[Any, ...]) -> str | None:
        self._in.side = True
        try:
            for value in args[:2]:
                text = self._text_of(value)
                if text is not None and (text + "/").startswith(self.root + "/"):
                    return text[len(self.root) :] or "/"
        finally:
            self._in.side = False
        return None

    def _text_of(self, value: Any) -> str | None:
        if isinstance(value, bool):
            return None
        if hasattr(value, "fileno"):
            return None
        if isinstance(value, int):
            try:
                return self._readlink(f"/proc/self/fd/{value}")
            except OSError:
                return None
        if isinstance(value, str | os.PathLike):
            return os.fspath(value)
        return None


def never(call: Call) -> bool:
    return False
