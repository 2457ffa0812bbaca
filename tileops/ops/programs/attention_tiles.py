"""Where the tiles of attention are, how large they are, and which keys a query sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import tileops.language as T
from tileops.ops.programs.rows import DTYPES

DTYPE = T.DTypeVar("dtype", *DTYPES)
SINK_DTYPE = T.DTypeVar("sink_dtype", *DTYPES)
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
# Logarithms of the rows' sums are stored for whole tiles, so that each copy of some is aligned.
PADDED = 128
# Products of float32 have all bits, as torch's have.
OPTIONS = {"tl.gemm_f32_precision": "ieee"}


# -- sizes -------------------------------------------------------------------------------------
class Tile(NamedTuple):
    """Queries and keys of a block, stages of its loop, and its threads."""

    queries: int
    keys: int
    stages: int
    threads: int


def columns_of(width: object) -> int:
    """Columns of a tile for heads of ``width`` elements; any serve before sizes have values."""
    return max(16, -(-width // 16) * 16) if isinstance(width, int) else 16


def forward_tile(D: object, DV: object, bits: int) -> Tile:
    """The tile of the forward pass for elements of so many bits: what an H100's memories hold."""
    both = columns_of(D) + columns_of(DV)
    if bits > 16:
        return Tile(32, 32 if both <= 256 else 16, 1, 128)  # a thread's registers suffice
    return Tile(128, 128 if both <= 320 else 64, 2, 256)


def backward_tile(D: object, DV: object, bits: int) -> Tile:
    """The tile of the gradients of keys and values; that of queries has as many rows as keys."""
    both = columns_of(D) + columns_of(DV)
    if bits > 16:
        rows = 32 if both <= 128 else 16
        return Tile(rows, rows, 1, 128)
    return Tile(64, 128 if both <= 256 else 64, 2, 256)


def adds_atomically(D: int, DV: int, bits: int) -> bool:
    """Whether one pass makes all gradients, where that may be: only these heads fit its roles."""
    return D == DV == 128 and bits == 16


# -- places ------------------------------------------------------------------------------------
class Rows(NamedTuple):
    """Where some positions of a head begin. ``batch`` is None for packed sequences."""

    batch: Any
    head: Any
    first: Any
    heads_first: bool


@dataclass(frozen=True)
class Place:
    """The sequences of a block: a batch element, a head, and where packed ones begin."""

    batch: Any
    head: Any
    kv_head: Any
    heads_first: tuple[bool, bool, bool]  # of queries, keys, values
    query_start: Any = 0
    key_start: Any = 0

    def query_head(self, first: Any) -> Rows:
        """The queries from ``first`` on."""
        return Rows(self.batch, self.head, self.query_start + first, self.heads_first[0])

    def key_head(self, first: Any) -> Rows:
        """The keys from ``first`` on."""
        return Rows(self.batch, self.kv_head, self.key_start + first, self.heads_first[1])

    def value_head(self, first: Any) -> Rows:
        """The values from ``first`` on."""
        return Rows(self.batch, self.kv_head, self.key_start + first, self.heads_first[2])

    def output_head(self, first: Any) -> Rows:
        """The rows of the output from ``first`` on."""
        return Rows(self.batch, self.head, self.query_start + first, False)


def layout(batch: Any, head: Any, H: Any, G: Any, *heads_first: bool) -> Place:
    """The place of a query head and of the key head that it shares with others."""
    return Place(batch, head, head // (H // G), (heads_first[0], heads_first[1], heads_first[2]))


def rows_of(X: Any, at: Rows, count: int) -> Any:
    """The region of ``count`` positions of a head, with the columns of a tile."""
    rows, columns = slice(at.first, at.first + count), slice(0, columns_of(X.shape[-1]))
    if at.batch is None:
        return X[rows, at.head, columns]
    if at.heads_first:
        return X[at.batch, at.head, rows, columns]
    return X[at.batch, rows, at.head, columns]


def sums_of(X: Any, at: Rows, count: int) -> Any:
    """The region of the numbers of ``count`` rows of a head."""
    rows = slice(at.first, at.first + count)
    return X[at.head, rows] if at.batch is None else X[at.batch, at.head, rows]


@T.macro
def store_rows(tile, X, at, end):
    """Write a tile of rows. ``end`` is the first row that is not to be written, seen from the tile.

    In packed sequences the next one follows; elsewhere the tensor ends.
    """
    if at.batch is None:
        for i, j in T.Parallel(*tile.shape):
            if i < end and j < X.shape[-1]:
                X[at.first + i, at.head, j] = T.cast(tile[i, j], X.dtype)
    else:
        T.copy(tile, rows_of(X, at, tile.shape[0]))


def shape_of(heads: Any, length: Any, width: Any, heads_first: bool) -> tuple[Any, ...]:
    """The shape of queries, keys or values, in the order of the argument."""
    return (..., heads, length, width) if heads_first else (..., length, heads, width)


# -- masks -------------------------------------------------------------------------------------
class Seen(NamedTuple):
    """Which keys a query sees: ``left`` before its own position and ``right`` behind; -1 for all.

    clips:         keys past the end are asked for, too.
    clips_queries: queries past the end are asked for, and are not to be seen by any key.
    offset:        what a query's position among the keys is more than its own.
    """

    queries: Any
    keys: Any
    left: int
    right: int
    clips: bool
    clips_queries: bool
    offset: Any = 0

    @property
    def hides(self) -> bool:
        """Whether a query may not see a key."""
        return self.left >= 0 or self.right >= 0 or self.clips or self.clips_queries

    def of(self, query: Any, key: Any) -> Any:
        """Whether ``query`` sees ``key``; only if something is hidden."""
        conditions = []
        if self.right >= 0:
            conditions.append(key <= query + self.offset + self.right)
        if self.left >= 0:
            conditions.append(key >= query + self.offset - self.left)
        if self.clips:
            conditions.append(key < self.keys)
        if self.clips_queries:
            conditions.append(query < self.queries)
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = T.And(whole, condition)
        return whole

    def first_key(self, query: Any) -> Any:
        """The first key that ``query`` sees."""
        return T.max(0, query + self.offset - self.left) if self.left >= 0 else 0

    def end_of_keys(self, end: Any) -> Any:
        """The end of the keys that the queries before ``end`` see."""
        return T.min(self.keys, end + self.offset + self.right) if self.right >= 0 else self.keys

    def first_query(self, key: Any) -> Any:
        """The first query that sees ``key``."""
        return T.max(0, key - self.offset - self.right) if self.right >= 0 else 0

    def end_of_queries(self, end: Any) -> Any:
        """The end of the queries that see the keys before ``end``."""
        return (
            T.min(self.queries, end - self.offset + self.left) if self.left >= 0 else self.queries
        )
