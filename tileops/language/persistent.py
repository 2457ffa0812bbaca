"""Persistent scheduling: loops and state by which few blocks walk many tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tileops.dtypes import DType
from tileops.errors import ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, HostAttr
from tileops.ir.stmt import Break, If
from tileops.language.allocation import alloc_var
from tileops.language.buffers import VarRef
from tileops.language.index_arithmetic import fits_its_type, product
from tileops.language.loops import Axis, LoopFrame
from tileops.language.operands import items_of
from tileops.language.tracer import Tracer, require_tracer
from tileops.language.value import INT32, INT64, Value, bind, index_expr, wrap

__all__ = ["Persistent", "PersistentTileScheduler", "loop_break"]


# The number of a tile that a block would take next ends at most this far below the end of int32.
_MOST_TILES = (1 << 31) - (1 << 24)


def _tile_dtype(tracer: Tracer, domain: Sequence[Expr], given: Sequence[Expr]) -> DType:
    """The type that holds the number of every tile, and of one more wave of blocks.

    ``given`` are the values that these numbers are computed from.
    """
    total = math.prod(int(e.value) for e in domain if isinstance(e, Const))
    fits = total <= _MOST_TILES and fits_its_type(tracer, *given)
    return INT64 if not fits or any(e.dtype == INT64 for e in given) else INT32


def _divmod(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    return fold.binary("floordiv", a, b), fold.binary("floormod", a, b)


def _grouped_coordinates(tile: Expr, domain: Sequence[Expr], group: Expr) -> tuple[Expr, ...]:
    """The coordinates of tile number ``tile``.

    The last dimension is walked in groups and is the fastest inside a group.
    The last group may be narrower, so every tile of the domain occurs once.
    """
    domain = tuple(fold.cast(e, tile.dtype) for e in domain)
    last = domain[-1]
    group = fold.binary("min", fold.cast(group, tile.dtype), last)
    in_group = fold.mul(product(domain[:-1]), group)
    number = fold.binary("floordiv", tile, in_group)
    first = fold.mul(number, group)
    width = fold.binary("min", fold.sub(last, first), group)
    rest, inner = _divmod(fold.sub(tile, fold.mul(number, in_group)), width)
    coordinates = [fold.add(first, inner)]
    for extent in reversed(domain[:-1]):
        rest, coordinate = _divmod(rest, extent)
        coordinates.append(coordinate)
    return tuple(reversed(coordinates))


class _PersistentLoop(LoopFrame):
    """A serial loop over waves that ends when the domain is used up."""

    def __init__(
        self, domain: tuple[Expr, ...], wave: Expr, index: Expr, group: Expr, dtype: DType
    ) -> None:
        """``dtype`` is the type of the numbers of tiles."""
        self.dtypes = tuple(e.dtype for e in domain)
        self.domain = tuple(fold.cast(e, dtype) for e in domain)
        self.wave = fold.cast(wave, dtype)
        self.index = fold.cast(index, dtype)
        self.group = group
        waves = fold.ceildiv(product(self.domain), self.wave)
        super().__init__("T.Persistent", "serial", (Axis(fold.const(0, dtype), waves),))

    def open(self, tracer: Tracer, names: Sequence[str]) -> tuple[Value, ...]:
        """Start recording the body; the coordinates of this block's tile."""
        if len(names) != len(self.domain):
            raise ProgramValueError(
                f"T.Persistent has {len(self.domain)} coordinates",
                found=f"{len(names)} in the `for`",
            )
        (wave,) = super().open(tracer, ("wave",))
        tile = bind("tile", fold.add(fold.mul(wave.expr, self.wave), self.index)).expr
        total = product(self.domain)
        done = fold.binary("ge", tile, total)
        tracer.emit(If(done, (Break(loc=tracer.location),)))
        coordinates = _grouped_coordinates(tile, self.domain, self.group)
        return tuple(
            bind(name, fold.cast(c, dtype))
            for name, c, dtype in zip(names, coordinates, self.dtypes, strict=True)
        )


def Persistent(
    domain: Sequence[object], wave_size: object, index: object, group_size: object = 8
) -> LoopFrame:
    """A loop over the tiles of ``domain`` that falls to block ``index`` of ``wave_size`` blocks.

    Gives one coordinate a dimension; the last dimension is walked in groups of ``group_size``.
    """
    tracer = require_tracer("T.Persistent")
    dims = tuple(
        index_expr(d, "an extent of T.Persistent")
        for d in items_of("T.Persistent", "domain", domain)
    )
    if not dims:
        raise ProgramValueError("T.Persistent needs at least one extent")
    wave, number = index_expr(wave_size, "wave_size"), index_expr(index, "index")
    group = index_expr(group_size, "group_size")
    dtype = _tile_dtype(tracer, dims, (*dims, wave, number))
    return _PersistentLoop(dims, wave, number, group, dtype)


def loop_break() -> None:
    """Leave the innermost loop, as Python's ``break``."""
    tracer = require_tracer("T.loop_break")
    if not any(r.kind in ("for", "while") for r in tracer.regions):
        raise ProgramValueError("T.loop_break is outside a loop")
    tracer.emit(Break())


class PersistentTileScheduler:
    """The state of a block that walks each ``num_workers``-th tile of a grid of tiles.

    ``init(worker)``, then ``while valid():`` work on (``m_idx``, ``n_idx``), then ``next_tile()``.
    ``num_workers`` None is the number of multiprocessors of the device.
    """

    def __init__(
        self,
        num_m: object,
        num_n: object,
        num_workers: object = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        require_tracer("T.PersistentTileScheduler")
        self._num_m = index_expr(num_m, "num_m")
        self._num_n = index_expr(num_n, "num_n")
        workers = HostAttr(INT32, "sm_count") if num_workers is None else None
        self._workers: Expr = workers or index_expr(num_workers, "num_workers")
        self._swizzle = int(swizzle_size)
        self._column_major = bool(column_major)
        self._stateful = stateful
        self._name = name or "scheduler"
        self._vars: dict[str, VarRef] = {}

    def _state(self, part: str) -> VarRef:
        if part not in self._vars:
            raise ProgramValueError(f"T.PersistentTileScheduler.{part} is known only after init()")
        return self._vars[part]

    @property
    def m_idx(self) -> Value:
        return self._state("m_idx")

    @property
    def n_idx(self) -> Value:
        return self._state("n_idx")

    @property
    def current_iter(self) -> Value:
        return self._state("current_iter")

    def coord(self, tile: object) -> tuple[Value, Value]:
        """The (m, n) coordinates of tile number ``tile``."""
        number = index_expr(tile, "the tile number")
        number = fold.cast(number, INT64 if number.dtype == INT64 else self._number_dtype())
        order = -1 if self._column_major else 1
        domain = (self._num_m, self._num_n)[::order]
        # A swizzle of 1 walks the inner dimension as a whole.
        group = domain[1] if self._swizzle <= 1 else fold.const(self._swizzle)
        m, n = _grouped_coordinates(number, domain, group)[::order]
        return wrap(fold.cast(m, self._num_m.dtype)), wrap(fold.cast(n, self._num_n.dtype))

    def _number_dtype(self, *steps: Expr) -> DType:
        given = (self._num_m, self._num_n, *steps)
        return _tile_dtype(require_tracer("T.PersistentTileScheduler"), given[:2], given)

    def init(self, worker: object) -> None:
        """Start at the first tile of block ``worker``."""
        tracer = require_tracer("T.PersistentTileScheduler.init")
        if not self._stateful:
            raise ProgramValueError(
                "T.PersistentTileScheduler(stateful=False) has no init(); use coord(tile)"
            )
        wide = self._number_dtype(self._workers)
        for part in ("tile", "m_idx", "n_idx", "current_iter"):
            tracer.names = [f"{self._name}_{part}"]
            self._vars[part] = alloc_var(wide if part == "tile" else INT32)
            self._vars[part].fresh = False
        self._state("tile").store(worker)
        self._state("current_iter").store(0)
        self._update()

    def _update(self) -> None:
        m, n = self.coord(self._state("tile"))
        self._state("m_idx").store(m)
        self._state("n_idx").store(n)

    def valid(self) -> Value:
        """True while the current tile is in the grid."""
        tile = self._state("tile").expr
        total = product(tuple(fold.cast(e, tile.dtype) for e in (self._num_m, self._num_n)))
        return wrap(fold.binary("lt", tile, total))

    def next_tile(self) -> None:
        """Go on to this block's next tile."""
        tile = self._state("tile")
        tile.store(wrap(fold.add(tile.expr, self._workers)))
        count = self._state("current_iter")
        count.store(count + 1)
        self._update()
