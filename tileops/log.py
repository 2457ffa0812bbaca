"""The log: lines by topic on the logger ``tileops``, and warnings that are given once."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings

from tileops import forks, settings
from tileops.errors import ArgumentError

logger = logging.getLogger("tileops")
_warned: set[str] = set()


class TileopsWarning(RuntimeWarning):
    """A warning from tileops: something was refused, replaced or lost, and the call went on."""


def is_wanted(topic: str) -> bool:
    """True if a line of ``topic`` would be seen: for lines that cost something to make."""
    return _is_named(topic) or (logger.hasHandlers() and logger.isEnabledFor(logging.INFO))


def emit(topic: str, line: str) -> None:
    """Log one line: to the logger, or to stderr where TILEOPS_LOG names ``topic`` or ``all``.

    A line reaches stderr once: if the application has set up logging, that decides instead.
    """
    if _is_named(topic) and not logger.hasHandlers():
        write(line)
    else:
        logger.info(line)


def _is_named(topic: str) -> bool:
    return not {topic, "all"}.isdisjoint(settings.current().log)


def set_log_level(level: str | int) -> None:
    """Set the level of the logger ``tileops`` by name, such as ``"DEBUG"``, or number.

    ArgumentError for a name that no level has.
    """
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if not isinstance(number, int):
        raise ArgumentError(f"set_log_level: expected a level such as 'INFO', got {level!r}")
    logger.setLevel(number)


def write(line: str) -> None:
    """Write one line to stderr, if it is there: a daemon's may be None, or closed."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stderr.write(f"tileops: {line}\n")


def warn_once(key: str, message: str) -> None:
    """Warn with TileopsWarning, once in the life of the process for each ``key``."""
    with forks.guard:
        if key in _warned:
            return
        _warned.add(key)
    warnings.warn(message, TileopsWarning, stacklevel=3)
