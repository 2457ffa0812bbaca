"""Why a launch does not run in roles."""

from __future__ import annotations

from tileops.location import Location


class Unfit(Exception):
    """A launch, or a part of it, does not fit Hopper's asynchronous units: ``reason``, at ``loc``.

    It is compiled as an ordinary Triton kernel then, with the same results.
    """

    def __init__(self, reason: str, loc: Location | None = None) -> None:
        super().__init__(reason)
        self.reason, self.loc = reason, loc
