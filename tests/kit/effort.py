"""How much the tests try: some with each change, all each night (``make nightly``)."""

from __future__ import annotations

import os

IS_NIGHTLY = os.environ.get("TILEOPS_NIGHTLY") == "1"


def effort(each_change: int, each_night: int) -> int:
    """The one of two numbers that this run asks for."""
    return each_night if IS_NIGHTLY else each_change
