"""Shapes of the tensors of an operator's forms, from rows and columns."""

from __future__ import annotations

from collections.abc import Callable

Shapes = tuple[tuple[int, ...], ...]


def rows(matrices: int, vectors: int = 0) -> Callable[[int, int], Shapes]:
    """So many (rows, columns), then so many (columns,)."""

    def shapes(rows: int, columns: int) -> Shapes:
        return ((rows, columns),) * matrices + ((columns,),) * vectors

    return shapes


def query_and_key(rows: int, columns: int) -> Shapes:
    """Four heads of queries and two of keys; a head has an even number of columns."""
    even = columns + columns % 2
    return (1, 4, rows, even), (1, 2, rows, even)
