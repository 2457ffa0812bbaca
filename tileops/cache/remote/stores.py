"""What a remote must do, the errors by which it fails, and its URL in messages."""

from __future__ import annotations

import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

_T = TypeVar("_T")

# Names below the prefix: entries by key, pointers by identity, leases by key.
ENTRIES, ALIASES, LEASES = "1/e/", "1/a/", "1/l/"
TTL_SECONDS = 30 * 86400  # of what is in Redis, from its last use


class RemoteError(Exception):
    """The remote did not do what was asked of it; the call goes on without."""


class UnavailableError(RemoteError):
    """It is down, slow or not to be found: worth no other try for a while."""


class RefusedError(RemoteError):
    """It answered, and the answer was no."""


@dataclass(frozen=True)
class Bounds:
    """How long a client waits, in seconds."""

    connect: float
    operation: float


# In a call somebody waits; a put in the background may take its time.
REDIS_BOUNDS, OBJECT_BOUNDS = Bounds(0.1, 0.25), Bounds(0.1, 0.5)
BACKGROUND_BOUNDS = Bounds(1.0, 5.0)
COMMAND_BOUNDS = Bounds(5.0, 60.0)


@dataclass(frozen=True)
class Item:
    """One object in a listing; ``used_at`` in Unix seconds, or when it was written."""

    name: str
    size: int
    used_at: float


class Lease(Protocol):
    """The right to compile one key for all machines, which ends by itself when nobody renews it."""

    def acquire(self) -> bool:
        """Take it; False if another holds it. RemoteError."""

    def renew(self) -> None:
        """Keep it for another while. RemoteError."""

    def release(self) -> None:
        """Give it back, if it is still this holder's. RemoteError."""


class RemoteStore(Protocol):
    """Bytes by name on a server or in a folder. Each method raises RemoteError and nothing else.

    ``operation_seconds`` is how long a caller waits for one.
    """

    operation_seconds: float

    def get(self, name: str) -> bytes | None:
        """The bytes of ``name``, None if there are none."""

    def put(self, name: str, data: bytes) -> None:
        """Put ``data`` in the place of what is there."""

    def create(self, name: str, data: bytes) -> bool:
        """Put ``data`` where nothing is; False if something is there."""

    def delete(self, name: str) -> None:
        """Remove ``name``, if it is there."""

    def items(self, prefix: str) -> Iterator[Item]:
        """What is below ``prefix``, one of those above."""

    def lease(self, key: str, seconds: float) -> Lease:
        """The lease of ``key``, which ends ``seconds`` after its holder has died."""

    def abandon(self) -> None:
        """Let who still waits for an answer end, where the client can."""


def shown(url: str) -> str:
    """``url`` for messages: without user, password and query, which hold secrets."""
    return re.sub(r"^([a-z0-9+]+://)[^/]*@", r"\1", url.partition("?")[0].partition("#")[0])


def scrubbed(url: str, text: object) -> str:
    """``text`` of an error of a client, short, without the secrets of ``url``."""
    found = f"{text!s:.400}"
    parts = urllib.parse.urlsplit(url)
    for secret in (url, parts.netloc.rpartition("@")[0], parts.password, parts.query):
        if secret:
            found = found.replace(secret, "…")
    return " ".join(found.split())[:200]


def within(seconds: float, work: Callable[[], _T]) -> _T:
    """What ``work()`` gives; UnavailableError if it has not ended after ``seconds``.

    It runs in a thread of its own, which then goes on alone: a client's own time limits hold for
    each step of an exchange, and a server can be slow in all of them.
    """
    results: list[_T] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # it is raised where the caller is
            errors.append(error)
        finally:
            ended.set()

    if seconds <= 0:
        raise UnavailableError("no time left")
    try:
        threading.Thread(target=run, name="tileops-remote", daemon=True).start()
    except RuntimeError as error:  # no more threads
        raise UnavailableError(str(error)) from None
    if not ended.wait(seconds):
        raise UnavailableError(f"no answer in {seconds * 1e3:.0f} ms")
    if errors:
        raise errors[0]
    return results[0]
