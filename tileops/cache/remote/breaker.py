"""The breaker: a remote that failed is not asked again for a while, so that it slows no call."""

from __future__ import annotations

import time

from tileops import forks

FIRST_SECONDS, MOST_SECONDS = 1.0, 60.0


class Breaker:
    """Closed while the remote answers; after a failure open for 1 s, then 2 s, to 60 s.

    When that time has passed, one caller tries, and the others wait for how it went.
    """

    def __init__(self) -> None:
        self._delay = 0.0  # 0 is closed
        self._until = 0.0
        self._is_trying = False

    def allows(self) -> bool:
        """True if the remote may be asked now."""
        if self._delay == 0:
            return True
        now = time.monotonic()
        with forks.guard:
            if now < self._until:
                return False
            self._until, self._is_trying = now + self._delay, True
            return True

    def succeeded(self) -> None:
        """Say that the remote answered."""
        self._delay = 0.0

    def failed(self) -> None:
        """Say that it did not."""
        with forks.guard:
            if self._delay and not self._is_trying:
                return  # asked together with the one whose failure opened it
            self._is_trying = False
            self._delay = min(max(FIRST_SECONDS, self._delay * 2), MOST_SECONDS)
            self._until = time.monotonic() + self._delay

    @property
    def is_open(self) -> bool:
        """True while calls go on without the remote."""
        return self._delay > 0
