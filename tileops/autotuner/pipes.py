"""Child processes that answer JSON messages over pipes and can be killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import IO, Any

from tileops import forks, settings

Message = dict[str, Any]

_LAST_WORDS = 2000  # bytes of a dead child's stderr that are kept
_REAP_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 1e6  # the system takes no longer wait


class ChildTimeoutError(Exception):
    """The child did not answer in time; it has been killed."""


class ChildEndedError(Exception):
    """The child ended without an answer. ``status`` is its exit status, negative for a signal."""

    def __init__(self, status: int, last_words: str) -> None:
        self.status = status
        words = f"ended with status {status}"
        with suppress(ValueError):  # not a signal
            words = f"killed by {signal.Signals(-status).name}"
        super().__init__(f"{words}{': ' if last_words else ''}{last_words}")


class Child:
    """One process running ``python -m <module> <pipe> <arena>``, in a process group of its own.

    Messages are answered one by one. ``arena`` is a file descriptor that the child inherits, and so
    is its end of the pipe.
    """

    def __init__(
        self, module: str, environment: Mapping[str, str] | None = None, arena: int | None = None
    ) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        with forks.guard:  # a child that is forked meanwhile would keep both ends
            self._pipe, other = Pipe()
            inherited = [other.fileno(), *([] if arena is None else [arena])]
            self._process = forks.start_process(
                [sys.executable, "-m", module, *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                cwd=settings.PACKAGE_ROOT,
                env=settings.module_environment(environment),
                pass_fds=inherited,
                start_new_session=True,
            )
            other.close()
            forks.renew_in_child(self)

    def renew(self) -> None:
        """A child of this process lets go of the pipe, unread: see ``forks.renew_in_child``."""
        self._pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: Message, timeout_s: float | None) -> Message:
        """The child's answer to ``message``.

        ChildTimeoutError (the child is killed) where it takes longer than ``timeout_s``,
        ChildEndedError where it ends instead.
        """
        try:
            self._pipe.send_bytes(json.dumps(message).encode())
            # Waiting begins when the child has the message.
            limit_s = None if timeout_s is None else min(timeout_s, _LONGEST_WAIT_SECONDS)
            if self._pipe.poll(limit_s):
                return dict(json.loads(self._pipe.recv_bytes()))
        except (OSError, EOFError):  # it has ended, or the pipe was closed here
            raise self._ended() from None
        self.kill()
        raise ChildTimeoutError(f"no answer within {timeout_s:g} s")

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
        """End the process and what it started, at once, and close its pipe."""
        self.end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_SECONDS)
        self._pipe.close()
        self._errors.close()


def serve(answer: Callable[[Message], Message]) -> None:
    """What a child does: answer each message from its pipe until the pipe ends.

    When the parent goes away in the middle of an answer, the process group ends at once: nobody
    waits for it, and it may never finish.
    """
    os.set_inheritable(int(sys.argv[1]), False)
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    requests: SimpleQueue[Message | None] = SimpleQueue()
    waiting = [0]  # answers that the parent has asked for and not got
    guard = threading.Lock()

    def read() -> None:
        while True:
            try:
                request = json.loads(pipe.recv_bytes())
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
        with suppress(OSError):  # the parent went away
            pipe.send_bytes(json.dumps(reply).encode())
