"""Child processes that answer messages over a pipe and can be killed at any moment.

A message is JSON, but for its ``rows``: a list of raw bytes, which follow it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    """One process running ``python -m <module> <pipe>``, in its own process group.

    It inherits its end of the pipe. What it prints is kept for the error of its end, or goes where
    this process's prints go if it ``shows_prints``. ``environment`` and ``drop`` as in
    ``settings.module_environment``.
    """

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str] | None = None,
        *,
        drop: tuple[str, ...] = (),
        shows_prints: bool = False,
    ) -> None:
        self._prints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        to = None if shows_prints else self._prints
        with forks.guard:  # a child that is forked meanwhile would keep both ends
            self._pipe, other = Pipe()
            self._process = forks.start_process(
                [sys.executable, "-m", module, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=to,
                stderr=to,
                cwd=settings.PACKAGE_ROOT,
                env=settings.module_environment(environment, drop=drop),
                pass_fds=[other.fileno()],
                start_new_session=True,  # Ctrl-C in a terminal is for this process
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
        """Whether it runs and this process started it and did not kill it."""
        return not self._pipe.closed and self._process.poll() is None

    def ask(self, message: Message, timeout_s: float | None = None) -> Message:
        """The child's answer to ``message``.

        ChildTimeoutError (the child is killed) if it takes longer than ``timeout_s``,
        ChildEndedError if it ends instead.
        """
        self.send(message)
        return self.receive(timeout_s)

    def send(self, message: Message) -> None:
        """Send ``message``; ChildEndedError if the child has ended.

        Rows wait, without a limit, for a child that does not read yet.
        """
        with self._ends():
            send(self._pipe, message)

    def receive(self, timeout_s: float | None = None) -> Message:
        """The child's next message; the wait and the errors are those of ``ask``."""
        limit_s = None if timeout_s is None else min(timeout_s, _LONGEST_WAIT_SECONDS)
        with self._ends():
            if self._pipe.poll(limit_s):
                return receive(self._pipe)
        self.kill()
        raise ChildTimeoutError(f"no answer within {timeout_s:g} s")

    @contextmanager
    def _ends(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:  # of a signal handler: pipes raise none
            raise
        except (OSError, EOFError):  # it has ended, or the pipe was closed here
            raise self._ended() from None

    def _ended(self) -> ChildEndedError:
        try:
            status = self._process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:  # it closed its pipes and goes on
            status = 0
        size = self._prints.seek(0, os.SEEK_END)
        self._prints.seek(max(0, size - _LAST_WORDS))
        words = self._prints.read().decode(errors="replace").strip()
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
        self._prints.close()


# -- the child's side ------------------------------------------------------------------------------
def parents_pipe() -> Connection[Any, Any]:
    """The child's end of the pipe, which no process that it starts inherits."""
    os.set_inheritable(int(sys.argv[1]), False)
    return Connection(int(sys.argv[1]))


def send(pipe: Connection[Any, Any], message: Message) -> None:
    """Send a message and its rows."""
    rows = [memoryview(row) for row in message.get("rows", ())]
    head = {**message, "rows": [row.nbytes for row in rows]} if "rows" in message else message
    pipe.send_bytes(json.dumps(head).encode())
    for row in rows:
        while row:
            row = row[os.write(pipe.fileno(), row) :]


def receive(pipe: Connection[Any, Any]) -> Message:
    """The next message; EOFError or OSError once the other side is gone.

    Its rows, if it has any, are bytearrays.
    """
    message = dict(json.loads(pipe.recv_bytes()))
    if "rows" in message:
        message["rows"] = [_row(pipe.fileno(), count) for count in message["rows"]]
    return message


def _row(descriptor: int, count: int) -> bytearray:
    # Read where they stay: ``Connection`` would make room for all that is missing at each read.
    row = bytearray(count)
    left = memoryview(row)
    while left:
        read = os.readv(descriptor, [left])
        if read == 0:
            raise EOFError
        left = left[read:]
    return row


def serve(answer: Callable[[Message], Message]) -> None:
    """Answer each message from the parent until the pipe ends.

    When the parent goes away in the middle of an answer, the process group ends at once: nobody
    waits for it, and it may never finish.
    """
    pipe = parents_pipe()
    requests: SimpleQueue[Message | None] = SimpleQueue()
    waiting = [0]  # answers that the parent has asked for and not got
    guard = threading.Lock()

    def read() -> None:
        while True:
            try:
                request = receive(pipe)
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
            send(pipe, reply)
