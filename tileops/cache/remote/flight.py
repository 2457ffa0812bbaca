"""One miss of the local cache: from the remote, or compiled by one machine for all."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tileops import counters, log, settings
from tileops.cache.entry import Built, Entry
from tileops.cache.key import Key
from tileops.cache.remote.fleet import Answer, Budget, Fleet, current
from tileops.cache.remote.stores import Lease, RemoteError
from tileops.errors import CacheError, CompileMissError

WAIT_SECONDS = 30.0  # for a machine that compiles the same; then compile privately
_FIRST_PAUSE, _MOST_PAUSE = 0.02, 0.25


def obtained(
    key: Key,
    build: Callable[[], Built],
    publish: Callable[[Built], Entry],
    keep: Callable[[Entry], Entry],
    hit: Callable[[str], None] | None,
) -> Entry:
    """The entry of ``key``: from the remote and kept here, or built, published and written there.

    Raises what ``build`` raises; a CompileMissError says what the remote answered.
    """
    fleet = current()
    if fleet is None:
        counters.add("misses")
        return publish(build())
    answer, lease = _asked(fleet, key.hash())
    if answer.entry is not None:
        if hit is not None:
            hit("remote")
        return keep(answer.entry)
    counters.add("misses")
    try:
        entry = publish(build())
    except CompileMissError as error:
        if not answer.why:
            raise
        raise CompileMissError(f"{error}; {answer.why}") from None
    except BaseException:
        if lease is not None:
            fleet.write_back.release(lease)
        raise
    if fleet.writes():
        fleet.write_back.put(entry, lease)
    elif lease is not None:
        fleet.write_back.release(lease)
    return entry


def _asked(fleet: Fleet, name: str) -> tuple[Answer, Lease | None]:
    """What the remote has; where it has nothing, the lease to compile, or None to go without."""
    fleet.prepare()
    budget = fleet.budget()
    answer = fleet.look_up(name, budget)
    has_answered = answer.result in ("miss", "damaged", "untrusted")
    if not has_answered or settings.current().strict or not fleet.writes():
        return answer, None
    try:
        return _led_or_waited(fleet, name, answer, budget)
    except (RemoteError, CacheError) as error:
        log.emit("cache", f"remote: compiling {name[:12]} without a lease: {error}")
        return answer, None


def _led_or_waited(
    fleet: Fleet, name: str, answer: Answer, budget: Budget
) -> tuple[Answer, Lease | None]:
    end, pause, has_waited = time.monotonic() + WAIT_SECONDS, _FIRST_PAUSE, False
    while True:
        lease = fleet.lease(name, budget)
        # Again, also with the lease: its last holder may have written meanwhile.
        again = fleet.look_up(name, budget, again=True)
        if again.entry is not None:
            if lease is not None:
                fleet.write_back.release(lease)
            return again, None
        if lease is not None:
            if has_waited:
                counters.add("remote_leases_expired")
            return answer, lease
        if again.result != answer.result:
            return again, None
        if time.monotonic() > end:
            log.emit("cache", f"remote: waited {WAIT_SECONDS:g} s for the lease of {name[:12]}")
            return answer, None
        if not has_waited:
            has_waited = True
            counters.add("remote_lease_waits")
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause, budget = min(pause * 1.5, _MOST_PAUSE), fleet.budget()
