"""Questions about processes."""

from __future__ import annotations

import time
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends_within(pid: int, seconds: float) -> bool:
    """True if the process ends in this time."""
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
