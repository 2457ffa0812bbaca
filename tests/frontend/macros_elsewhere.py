"""Macros in another file than the programs that call them, for the tests of call chains."""

from __future__ import annotations

import tileops.language as T


@T.macro
def copied_as(dst, src):
    T.copy(src, dst)


@T.macro
def copied_twice(dst, src):
    for _ in T.serial(2):
        copied_as(dst, src)
