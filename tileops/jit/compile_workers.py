"""Compile workers: killable processes that turn traced programs into entries of the cache.

A worker is ``python -m tileops.jit.compile_workers <pipe>``. It gets programs as text, so it never
runs user code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tileops import counters, settings
from tileops.cache import staging
from tileops.child import Child, ChildEndedError, ChildTimeoutError, Message, serve
from tileops.errors import InternalError, SharedMemoryError
from tileops.jit.compiling import Request, obtain_listed
from tileops.jit.loadable import loadable_of

_Name = TypeVar("_Name")

MODULE = "tileops.jit.compile_workers"
START_SECONDS = 300.0  # importing torch takes seconds, a minute on a busy machine


@dataclass(frozen=True)
class Compiled:
    """What became of a request: ok with ``hash`` and ``loadable``, or another status and a reason.

    Statuses: ok, compile_error, shared_memory, timeout. ``compile_s`` is 0 for a cache hit.
    """

    status: str
    reason: str = ""
    hash: str = ""
    loadable: dict[str, Any] | None = None
    compile_s: float = 0.0


def worker_count() -> int:
    """How many workers compile: ``TILEOPS_TUNE_WORKERS``, else the usable processors."""
    return settings.current().tune_workers or len(os.sched_getaffinity(0))


class CompilePool:
    """Workers that compile into the cache at ``cache_dir``; ``timeout_s`` bounds each request.

    Without a directory (empty text: memory only) they compile into one that goes with the pool.
    Workers start when first needed. Close it, or use it in a ``with`` statement.
    """

    def __init__(self, cache_dir: str, timeout_s: float, workers: int | None = None) -> None:
        self._limit = workers or worker_count()
        self._timeout_s = timeout_s
        self._temporary: Path | None = None
        if not cache_dir:
            self._temporary = staging.temporary_path("tune")
            cache_dir = str(self._temporary)
        self._environment = {
            **settings.as_environment(),
            "TILEOPS_CACHE_DIR": os.path.abspath(cache_dir),  # noqa: PTH100 - symlinks stay
            "TILEOPS_CACHE_DISABLE": "0",
            "TILEOPS_STRICT": "0",
            "TILEOPS_LOG": "",
            # What is compiled must be in the cache.
            "TILEOPS_BUNDLE": "",
            "TILEOPS_INSTALLED_BUNDLES": "0",
        }
        self._guard = threading.Lock()
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._is_closed = False

    def start(self, count: int) -> None:
        """Start up to ``count`` workers now, so that they are ready when the requests are."""
        with self._guard:
            while len(self._all) < min(count, self._limit):
                self._idle.append(self._new())

    def compile(self, requests: Mapping[_Name, Request]) -> Iterator[tuple[_Name, Compiled]]:
        """Results with the names of their requests, in the order in which they come."""
        threads = ThreadPoolExecutor(max(1, min(self._limit, len(requests))))
        try:
            names = {threads.submit(self._work, r): name for name, r in requests.items()}
            for done in as_completed(names):
                yield names[done], done.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def _work(self, request: Request) -> Compiled:
        if request.program.externs:
            return self._work_here(request)
        child = self._take()
        try:
            child.ask({}, START_SECONDS)  # starting is not part of compiling
            done = Compiled(**child.ask(request.to_json(), self._timeout_s))
        except ChildTimeoutError:
            return Compiled("timeout", f"compiling took longer than {self._timeout_s:g} s")
        except ChildEndedError as error:
            return Compiled("compile_error", f"the compiler's process was {error}")
        finally:
            with self._guard:
                if child.is_alive and not self._is_closed:
                    self._idle.append(child)
        self._note(request, done)
        return done

    def _work_here(self, request: Request) -> Compiled:
        """Compile in this process, which alone has the foreign kernels of the program."""
        return Compiled(**_answered(lambda: _obtained(request)))

    def _note(self, request: Request, done: Compiled) -> None:
        if done.compile_s:
            counters.record_compile(
                counters.CompileEvent(
                    request.op, str(request.target), request.why, done.compile_s, done.hash,
                    dict(request.sizes),
                )
            )  # fmt: skip

    def _new(self) -> Child:
        child = Child(MODULE, self._environment)
        self._all.add(child)
        return child

    def _take(self) -> Child:
        with self._guard:
            if self._is_closed:
                raise InternalError("the compile workers have been ended")
            self._all = {child for child in self._all if child.is_alive}
            while self._idle:
                child = self._idle.pop()
                if child.is_alive:
                    return child
            return self._new()

    def close(self) -> None:
        """Kill the workers; what they were compiling is not in the cache."""
        with self._guard:
            self._is_closed = True
            children, idle = self._all, self._idle
            self._all, self._idle = set(), []
        for child in children - set(idle):
            child.end()  # its thread closes it
        for child in idle:
            child.kill()
        if self._temporary is not None:
            staging.discard_temporary(self._temporary)

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


# -- the worker's process --------------------------------------------------------------------------
def answer(message: Message) -> Message:
    """Compile what ``message`` asks for: the fields of a ``Compiled``.

    A message without a program is answered once the worker is there.
    """
    if "program" not in message:
        return {"status": "ok"}
    return _answered(lambda: _obtained(Request.from_json(message)))


def _answered(compile_it: Callable[[], Message]) -> Message:
    try:
        return compile_it()
    except SharedMemoryError as error:
        return {"status": "shared_memory", "reason": str(error)}
    except Exception as error:  # whatever a compiler does, the worker goes on
        return {"status": "compile_error", "reason": f"{type(error).__name__}: {error}"}


def _obtained(request: Request) -> Message:
    seconds: list[float] = []
    remove = counters.on_compile(lambda event: seconds.append(event.seconds))
    try:
        entry = obtain_listed(request)
    finally:
        remove()
    return {
        "status": "ok",
        "hash": entry.hash,
        "loadable": loadable_of(request, entry),
        "compile_s": sum(seconds),
    }


if __name__ == "__main__":
    serve(answer)
