"""Child processes that answer JSON messages over pipes and can be killed at any moment."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

from tileops import forks, settings

Message = dict[str, Any]

_HEAD = struct.Struct(">Q")
_LAST_WORDS = 2000  # bytes of a dead child's stderr that are kept
_REAP_SECONDS = 10.0
_POLL_LIMIT_MS = 1 << 30  # the system takes no longer wait at a time


class ChildTimeoutError(Exception):
    """The child did not answer in time; it has been killed."""


class ChildEndedError(Exception):
    """The child ended without an answer. ``status`` is its exit status, negative for a signal."""

    def __init__(self, status: int, last_words: str) -> None:
        self.status = status
        super().__init__(f"{describe_status(status)}{': ' if last_words else ''}{last_words}")


def describe_status(status: int) -> str:
    """An exit status in words: ``killed by SIGSEGV`` or ``ended with status 3``."""
    if status < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


class Child:
    """One process running ``python -m <module>``, in a process group of its own.

    Messages are answered one by one. ``arena`` is a file descriptor that the child inherits.
    """

    def __init__(
        self, module: str, environment: Mapping[str, str] | None = None, arena: int | None = None
    ) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = forks.start_process(
            [sys.executable, "-m", module, *([] if arena is None else [str(arena)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=settings.PACKAGE_ROOT,
            env=settings.module_environment(environment),
            pass_fds=() if arena is None else (arena,),
            start_new_session=True,
        )
        forks.renew_in_child(self)

    def renew(self) -> None:
        """A child of this process lets go of the pipes, unread: see ``forks.renew_in_child``."""
        forks.drop_pipes(self._process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def ask(self, message: Message, timeout_s: float | None) -> Message:
        """The child's answer to ``message``.

        ChildTimeoutError (the child is killed) where it takes longer than ``timeout_s``,
        ChildEndedError where it ends instead.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_message(self._process.stdin.fileno(), message)
            # Waiting begins when the child has the message.
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            return read_message(self._process.stdout.fileno(), deadline)
        except TimeoutError:
            self.kill()
            raise ChildTimeoutError(f"no answer within {timeout_s:g} s") from None
        except (BrokenPipeError, EOFError, ValueError):
            raise self._ended() from None

    def _ended(self) -> ChildEndedError:
        try:
            status = self._process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:  # it closed its pipes and goes on
            status = 0
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS))
        words = self._errors.read().decode(errors="replace").strip()
        self.kill()
        return ChildEndedError(status, words)

    def end(self) -> None:
        """End the process and what it started; a thread that waits for its answer gets an error."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process and what it started, at once, and close its pipes."""
        self.end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_SECONDS)
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with suppress(OSError):
                    file.close()


def write_message(descriptor: int, message: Message) -> None:
    """Write one message, all of it."""
    text = json.dumps(message).encode()
    data = memoryview(_HEAD.pack(len(text)) + text)
    while data:
        data = data[os.write(descriptor, data) :]


def read_message(descriptor: int, deadline: float | None = None) -> Message:
    """One message; EOFError at the end of the pipe, TimeoutError past ``deadline`` (monotonic)."""
    (length,) = _HEAD.unpack(_read(descriptor, _HEAD.size, deadline))
    return dict(json.loads(_read(descriptor, length, deadline)))


def _read(descriptor: int, count: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            _wait(descriptor, deadline)
        part = os.read(descriptor, min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _wait(descriptor: int, deadline: float) -> None:
    poll = select.poll()  # select.select takes no descriptor past 1023
    poll.register(descriptor, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(min(left * 1e3, _POLL_LIMIT_MS)):
            return
    raise TimeoutError


def serve(answer: Callable[[Message], Message]) -> None:
    """What a child does: answer each message of stdin on stdout until the input ends.

    What else is written to stdout goes to stderr. When the parent goes away in the middle of an
    answer, the process group ends at once: nobody waits for it, and it may never finish.
    """
    incoming = os.dup(0)
    outgoing = os.dup(1)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    requests: SimpleQueue[Message | None] = SimpleQueue()
    waiting = [0]  # answers that the parent has asked for and not got
    guard = threading.Lock()

    def read() -> None:
        while True:
            try:
                request = read_message(incoming)
            except (EOFError, OSError):
                break
            with guard:
                waiting[0] += 1
            requests.put(request)
        with guard:
            is_busy = waiting[0] > 0
        if is_busy:
            os.killpg(0, signal.SIGKILL)
        requests.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (request := requests.get()) is not None:
        reply = answer(request)
        with guard:
            waiting[0] -= 1
        with suppress(BrokenPipeError):
            write_message(outgoing, reply)
