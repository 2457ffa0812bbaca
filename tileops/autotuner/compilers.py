"""Owns the pool of compile workers: parallel, each killable, each config under a time limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tileops import counters, settings
from tileops.autotuner.pipes import Child, ChildEndedError, ChildTimeoutError, Message
from tileops.cache import staging

MODULE = "tileops.autotuner.worker"
START_SECONDS = 300.0  # importing torch takes seconds, a minute on a busy machine


@dataclass(frozen=True)
class CompileJob:
    """One config to compile: its program as text, target, facts, and words for people.

    A program that is not ``movable`` runs in the process of its caller only.
    """

    program: str
    target: str
    fast: bool
    index64: bool
    op: str
    sizes: tuple[tuple[str, int], ...] = ()
    script: str | None = None
    movable: bool = True

    def message(self) -> Message:
        """The request that a worker takes."""
        return {
            "program": self.program,
            "target": self.target,
            "fast": self.fast,
            "index64": self.index64,
            "op": self.op,
            "why": "tuning",
            "sizes": dict(self.sizes),
            "script": self.script,
        }


@dataclass(frozen=True)
class Compiled:
    """What became of a job: ok with ``hash`` and ``loadable``, or another status with a reason.

    Statuses: ok, compile_error, shared_memory, timeout.
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
    """Workers that compile into the cache at ``cache_dir``; ``timeout_s`` bounds each config.

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
            "TILEOPS_BUNDLE": "",  # what is compiled must lie in the cache
        }
        self._guard = threading.Lock()
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._is_closed = False

    def start(self, count: int) -> None:
        """Start up to ``count`` workers now, so that they are ready when the jobs are."""
        with self._guard:
            while len(self._all) < min(count, self._limit):
                self._idle.append(self._new())

    def compile(self, jobs: Sequence[CompileJob]) -> Iterator[tuple[int, Compiled]]:
        """Results with the numbers of their jobs, in the order in which they come."""
        waiting: SimpleQueue[int | None] = SimpleQueue()
        done: SimpleQueue[tuple[int, Compiled] | BaseException] = SimpleQueue()
        for number in range(len(jobs)):
            waiting.put(number)
        threads = []
        for _ in range(min(self._limit, len(jobs))):
            waiting.put(None)
            threads.append(threading.Thread(target=self._work, args=(jobs, waiting, done)))
            threads[-1].daemon = True
            threads[-1].start()
        for _ in range(len(jobs)):
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found

    def _work(
        self,
        jobs: Sequence[CompileJob],
        waiting: SimpleQueue[int | None],
        done: SimpleQueue[tuple[int, Compiled] | BaseException],
    ) -> None:
        child: Child | None = None
        try:
            while (number := waiting.get()) is not None and not self._is_closed:
                child = child if child is not None and child.is_alive else self._take()
                done.put((number, self._one(child, jobs[number])))
        except BaseException as error:  # the caller's thread raises it
            done.put(error)
        finally:
            self._give(child)

    def _one(self, child: Child, job: CompileJob) -> Compiled:
        try:
            child.ask({}, START_SECONDS)  # starting is no part of compiling
            found = child.ask(job.message(), self._timeout_s)
        except ChildTimeoutError:
            return Compiled("timeout", f"compiling took longer than {self._timeout_s:g} s")
        except ChildEndedError as error:
            return Compiled("compile_error", f"the compiler's process was {error}")
        done = Compiled(**found)
        if done.compile_s:
            counters.record_compile(
                counters.CompileEvent(
                    job.op, job.target, "tuning", done.compile_s, done.hash, dict(job.sizes)
                )
            )
        return done

    def _new(self) -> Child:
        child = Child(MODULE, self._environment)
        self._all.add(child)
        return child

    def _take(self) -> Child:
        with self._guard:
            self._all = {child for child in self._all if child.is_alive}
            while self._idle:
                child = self._idle.pop()
                if child.is_alive:
                    return child
            return self._new()

    def _give(self, child: Child | None) -> None:
        with self._guard:
            if child is not None and child.is_alive and not self._is_closed:
                self._idle.append(child)

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
