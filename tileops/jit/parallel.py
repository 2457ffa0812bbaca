"""Owns compiling several kernels at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tileops import log, settings

_T = TypeVar("_T")


def run_all(
    jobs: Sequence[Callable[[], _T]], num_workers: int | None, ignore_error: bool
) -> list[_T | None]:
    """The results of ``jobs`` in their order, from a pool of threads.

    The first failure raises after all jobs have ended; with ``ignore_error`` each failure is logged
    and gives None. ``num_workers`` defaults to ``TILEOPS_COMPILE_WORKERS``, else the usable
    processors.
    """
    if not jobs:
        return []
    workers = num_workers or settings.current().compile_workers or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=min(len(jobs), workers)) as pool:
        futures = [pool.submit(job) for job in jobs]
    return [_result(n, future, ignore_error) for n, future in enumerate(futures)]


def _result(number: int, future: Future[_T], ignore_error: bool) -> _T | None:
    error = future.exception()
    if error is None or not ignore_error or not isinstance(error, Exception):
        return future.result()
    log.logger.warning("compile %d failed: %s: %s", number, type(error).__name__, error)
    return None
