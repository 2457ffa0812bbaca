"""``TensorCoreIntrinEmitter``: the steps of a product of tiles by hand, for the warps of blocks."""

from __future__ import annotations

from typing import Any

from tileops import language as T
from tileops.dtypes import DType, dtype_of
from tileops.errors import ArgumentError, UnsupportedConstructError

__all__ = ["TensorCoreIntrinEmitter"]

_WARP = 32
_ROWS = 16  # of a matrix instruction
_COLUMNS = 8
_SUMS = 4  # of a thread and an instruction


class TensorCoreIntrinEmitter:
    """Loads, products and stores of the tiles of each warp, by T.ptx_ldmatrix and T.ptx_mma.

    A block has ``block_row_warps`` times ``block_col_warps`` warps, each with ``warp_row_tiles``
    rows and ``warp_col_tiles`` columns of the product. A thread's arrays have ``local_size_a``,
    ``local_size_b`` and ``local_size_out`` elements for each micro tile of ``micro_size_x`` rows,
    ``micro_size_y`` columns and ``micro_size_k`` of depth. The other parameters change nothing.
    """

    WARP_SIZE = _WARP
    M_DIM = _ROWS

    def __init__(
        self,
        a_dtype: object = "float16",
        b_dtype: object = "float16",
        accum_dtype: object = "float16",
        a_transposed: bool = False,
        b_transposed: bool = False,
        block_row_warps: int = 2,
        block_col_warps: int = 2,
        warp_row_tiles: int = 8,
        warp_col_tiles: int = 8,
        chunk: int = 16,
        reduce_k: int = 1,
        num_elems_per_byte: int = 1,
        is_m_first: bool = False,
        thread_var: object = None,
    ) -> None:
        """ArgumentError for tiles that micro tiles do not fill."""
        if reduce_k != 1 or num_elems_per_byte != 1:
            raise UnsupportedConstructError(
                "TensorCoreIntrinEmitter with reduce_k or packed elements; T.gemm has both"
            )
        self.a_dtype: DType = dtype_of(a_dtype)
        self.b_dtype: DType = dtype_of(b_dtype)
        self.accum_dtype: DType = dtype_of(accum_dtype)
        self.a_transposed, self.b_transposed = bool(a_transposed), bool(b_transposed)
        self.block_row_warps, self.block_col_warps = block_row_warps, block_col_warps
        self.warp_row_tiles, self.warp_col_tiles = warp_row_tiles, warp_col_tiles
        self.chunk, self.reduce_k, self.is_m_first = chunk, reduce_k, bool(is_m_first)
        self.micro_size_x = _ROWS
        self.micro_size_y = 2 * _COLUMNS if warp_col_tiles % (2 * _COLUMNS) == 0 else _COLUMNS
        self.micro_size_k = 256 // self.a_dtype.bits
        for what, size, unit in (
            ("warp_row_tiles", warp_row_tiles, self.micro_size_x),
            ("warp_col_tiles", warp_col_tiles, self.micro_size_y),
            ("chunk", chunk, self.micro_size_k),
        ):
            if size < unit or size % unit:
                raise ArgumentError(
                    f"TensorCoreIntrinEmitter: expected {what} a multiple of {unit}, got {size}"
                )
        self.warp_rows = warp_row_tiles // self.micro_size_x
        self.warp_cols = warp_col_tiles // self.micro_size_y
        self.local_size_a = self.micro_size_x * self.micro_size_k // _WARP
        self.local_size_b = self.micro_size_y * self.micro_size_k // _WARP
        self.local_size_out = self.micro_size_x * self.micro_size_y // _WARP
        self.threads = _WARP * block_row_warps * block_col_warps

    def get_thread_binding(self) -> Any:  # noqa: ANN401
        """The number of the thread in its block."""
        return T.get_warp_idx() * _WARP + T.get_lane_idx()

    def extract_thread_binding(
        self,
        thread_id: Any,  # noqa: ANN401
        is_m_first: bool | None = None,
    ) -> tuple[Any, Any, Any]:
        """The thread's lane, and the column and the row of its warp's tile."""
        lane, warp = thread_id % _WARP, thread_id // _WARP
        if self.is_m_first if is_m_first is None else is_m_first:
            row = warp % self.block_row_warps
            return lane, warp // self.block_row_warps % self.block_col_warps, row
        column = warp % self.block_col_warps
        return lane, column, warp // self.block_col_warps % self.block_row_warps

    def ldmatrix_a(self, A_local_buf: Any, A_shared_buf: Any, ki: Any, rk: object = 0) -> None:  # noqa: ANN401
        """The rows of a warp at depth ``ki`` of micro tiles, into each thread's array."""
        lane, _, warp = self.extract_thread_binding(self.get_thread_binding())
        for i in range(self.warp_rows):
            first = (warp * self.warp_rows + i) * _ROWS
            at = i * self.local_size_a
            self._load(A_local_buf, at, A_shared_buf, first, ki, lane, turned=self.a_transposed)

    def ldmatrix_b(self, B_local_buf: Any, B_shared_buf: Any, ki: Any, rk: object = 0) -> None:  # noqa: ANN401
        """The columns of a warp at depth ``ki`` of micro tiles, into each thread's array."""
        lane, warp, _ = self.extract_thread_binding(self.get_thread_binding())
        for j in range(self.warp_cols):
            for half in range(self.micro_size_y // _COLUMNS):
                first = (warp * self.warp_cols + j) * self.micro_size_y + half * _COLUMNS
                at = j * self.local_size_b + half * self._words(2)
                turned = not self.b_transposed
                self._load(B_local_buf, at, B_shared_buf, first, ki, lane, turned=turned, words=2)

    def _words(self, count: int) -> int:
        """How many elements ``count`` words hold."""
        return count * 32 // self.a_dtype.bits

    def _load(
        self, out: Any, at: int, tile: Any, first: Any, ki: Any, lane: Any,  # noqa: ANN401
        *, turned: bool, words: int = 4,
    ) -> None:  # fmt: skip
        """A matrix of 16 rows, or of 8 with 2 words, and its depth; ``turned``: depth by row."""
        depth, dtype = ki * self.micro_size_k, out.dtype
        if dtype.bits == 16:
            line, matrix = lane % 8, lane // 8 % words
            # Matrices of 8 x 8: rows first for A's four, depth first for B's two.
            across = matrix % 2 * 8 if words == 4 else 0
            along = (matrix // 2 if words == 4 else matrix) * 8
            place = (depth + along + line, first + across)
            if not turned:
                place = (first + across + line, depth + along)
            T.ptx_ldmatrix(dtype, turned, words, ".b16", out, at, T.address_of(tile[place]))
            return
        pack = 32 // dtype.bits
        for w in range(words):
            row = first + lane // 4 + (w % 2 * 8 if words == 4 else 0)
            start = depth + (lane % 4 + 4 * (w // 2 if words == 4 else w)) * pack
            for n in range(pack):
                out[at + w * pack + n] = tile[(start + n, row) if turned else (row, start + n)]

    def mma(
        self, A_local_buf: object, B_local_buf: object, C_local_buf: object, k_inner: object = 0
    ) -> None:
        """Add the products of what ``ldmatrix_a`` and ``ldmatrix_b`` loaded to the sums."""
        shape = f"m16n8k{self.micro_size_k}"
        for i in range(self.warp_rows):
            for j in range(self.warp_cols):
                for half in range(self.micro_size_y // _COLUMNS):
                    b = j * self.local_size_b + half * self._words(2)
                    c = (i * self.warp_cols + j) * self.local_size_out + half * _SUMS
                    T.ptx_mma(
                        self.accum_dtype, shape, "row", "col", self.a_dtype, self.b_dtype,
                        self.accum_dtype, A_local_buf, i * self.local_size_a, B_local_buf, b,
                        C_local_buf, c,
                    )  # fmt: skip

    def stmatrix(
        self,
        C_local_buf: Any,  # noqa: ANN401
        C_buf: Any,  # noqa: ANN401
        pid_m: Any = None,  # noqa: ANN401
        pid_n: Any = None,  # noqa: ANN401
    ) -> None:
        """The sums of each thread into a tile, or into the tensor's tile of a block.

        ``C_buf`` has rows and columns, or the numbers of a micro tile before those in it.
        """
        lane, warp_n, warp_m = self.extract_thread_binding(self.get_thread_binding())
        rows = 0 if pid_m is None else pid_m * self.block_row_warps * self.warp_rows
        columns = 0 if pid_n is None else pid_n * self.block_col_warps * self.warp_cols
        x, y = self.micro_size_x, self.micro_size_y
        for i in range(self.warp_rows):
            for j in range(self.warp_cols):
                m, n = rows + warp_m * self.warp_rows + i, columns + warp_n * self.warp_cols + j
                for s in range(self.local_size_out):
                    row = lane // 4 + s % _SUMS // 2 * 8
                    column = s // _SUMS * _COLUMNS + lane % 4 * 2 + s % 2
                    place: tuple[Any, ...] = (m, n, row, column)
                    if C_buf.ndim == 2:
                        place = (m * x + row, n * y + column)
                    value = C_local_buf[(i * self.warp_cols + j) * self.local_size_out + s]
                    C_buf[place] = T.cast(value, C_buf.dtype)
