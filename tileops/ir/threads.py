"""The statement nodes of launches whose statements are of single threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tileops.ir.expr import Buffer, Expr, Region, Var, comma_separated, typed
from tileops.ir.node import Body, Stmt

MOST_THREADS = 1024  # of a block
MOST_BLOCKS = 8  # of a cluster, on every device that has clusters
# What an imported source finds included.
CUDA_HEADERS = ("cuda_fp16.h", "cuda_bf16.h")


@dataclass(frozen=True)
class Threads(Stmt):
    """``body`` is run by each of ``count`` threads of the block, which differ in ``var``.

    It is all of its launch. Threads go on independently and wait where a statement says so. Buffers
    of scope local and var are each thread's own, shared ones are the block's; there are no others
    on chip. What a tile operation or a parallel nest does on shared and global buffers is the work
    of the block, shared among its threads. ``reason`` says why the launch is not one of tiles.
    """

    BODIES = ("body",)
    DEFINES = ("var",)
    TEXT = "threads {0.var} in {0.count}: # {0.reason}"

    var: Var
    count: int
    body: Body
    reason: str

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        yield from typed(self.var, "int32", "the index of threads")
        if not 0 < self.count <= MOST_THREADS:
            yield f"{self.count} threads in a block"


# What threads of a warp or block tell each other, by the name that the language gives it, with the
# dtype of its result; None is that of its first argument. The mask, if it has one, comes last.
EXCHANGES: dict[str, str | None] = {
    # value, lane or distance, width, mask
    "shfl_sync": None, "shfl_up": None, "shfl_down": None, "shfl_xor": None,
    # condition, mask
    "any_sync": "int32", "all_sync": "int32", "ballot_sync": "uint64",
    # value, mask
    "match_any_sync": "uint32", "match_all_sync": "uint32",
    "activemask": "uint64",
    # value
    "warp_reduce_sum": None, "warp_reduce_max": None, "warp_reduce_min": None,
    "warp_reduce_bitand": None, "warp_reduce_bitor": None,
    # condition, of all threads of the block
    "syncthreads_and": "int32", "syncthreads_or": "int32", "syncthreads_count": "int32",
}  # fmt: skip


@dataclass(frozen=True)
class Exchange(Stmt):
    """``result`` is what a thread learns from others, which all run this statement.

    Those are the lanes of a mask in the thread's warp, or all threads of the block.
    """

    DEFINES = ("result",)

    result: Var
    op: str
    args: tuple[Expr, ...]

    @property
    def is_of_the_block(self) -> bool:
        """True for a barrier of the block, which gives all threads one result."""
        return self.op.startswith("syncthreads")

    def text(self) -> str:
        """The canonical text."""
        return f"{self.result} = exchange.{self.op}({comma_separated(self.args)})"

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        if self.op not in EXCHANGES:
            yield f"unknown exchange {self.op!r}"
            return
        dtype = EXCHANGES[self.op] or self.args[0].dtype
        yield from typed(self.result, dtype, f"the result of {self.op}")


# Words of 32 bits that a thread has of the operands of one matrix instruction, and its sums.
MMA_WORDS, MMA_SUMS = (4, 2), 4


@dataclass(frozen=True)
class Mma(Stmt):
    """One matrix instruction of a warp on what each thread has: ``c += a @ b``, m16n8.

    ``a`` has 4 words of 32 bits, ``b`` 2, ``c`` 4 sums; csrc/cpu/mma.h says of which elements.
    """

    READS = ("a", "b", "c")
    WRITES = ("c",)
    TEXT = "mma {0.a}, {0.b} -> {0.c}"

    a: Region
    b: Region
    c: Region


@dataclass(frozen=True)
class LoadMatrix(Stmt):
    """``dst``, 1, 2 or 4 words of each thread, from matrices of 8 rows of 16 bytes.

    Lane 8 n + i gives the start of row i of matrix n, ``src``.
    """

    READS = ("src",)
    WRITES = ("dst",)

    src: Region
    dst: Region
    transposed: bool

    def text(self) -> str:
        """The canonical text."""
        return f"load matrix {self.src} -> {self.dst}{' transposed' if self.transposed else ''}"


@dataclass(frozen=True)
class RandomStart(Stmt):
    """The thread's generator goes to number ``offset`` of a sequence of a seed; all are uint64."""

    DTYPES: ClassVar[Mapping[str, str]] = {
        "seed": "uint64",
        "sequence": "uint64",
        "offset": "uint64",
    }
    TEXT = "random start {0.seed}, {0.sequence}, {0.offset}"

    seed: Expr
    sequence: Expr
    offset: Expr


@dataclass(frozen=True)
class RandomNumber(Stmt):
    """``result`` is the next number of the thread's generator: a uint32, or a float32 in (0, 1]."""

    DEFINES = ("result",)
    TEXT = "{0.result} = random {0.result.dtype.short}"

    result: Var

    def faults(self) -> Iterator[str]:
        """The rules that it breaks."""
        if self.result.dtype not in ("uint32", "float32"):
            yield f"a random {self.result.dtype}"


@dataclass(frozen=True)
class ImportSource(Stmt):
    """CUDA C++ before the kernel; ``headers`` is the digest of all that it may include."""

    TEXT = "import source {0.source!r} headers {0.headers}"

    source: str
    headers: str


@dataclass(frozen=True)
class ExternCall(Stmt):
    """A call of a function of an imported source.

    Each of ``args`` is a number, or a region of one element: the address of that. ``outputs`` are
    those through which the function may write. ``result``, if given, is what it returns.
    """

    DEFINES = ("result",)
    READS = ("args",)
    WRITES = ("outputs",)

    function: str
    args: tuple[Expr | Region, ...]
    outputs: tuple[Region, ...]
    result: Var | None = None

    def text(self) -> str:
        """The canonical text."""
        result = "" if self.result is None else f"{self.result} = "
        args = ", ".join(arg.text() for arg in self.args)
        written = ", ".join(region.text() for region in self.outputs)
        return f"{result}extern.{self.function}({args}) writes [{written}]"


@dataclass(frozen=True)
class GridBarrier(Stmt):
    """All threads of all blocks wait for each other; ``arrivals`` starts as one 0 of uint32."""

    READS = ("arrivals",)
    WRITES = ("arrivals",)
    TEXT = "grid barrier {0.arrivals}"

    arrivals: Buffer


@dataclass(frozen=True)
class ClusterBarrier(Stmt):
    """Each thread arrives at the barrier of its cluster, waits there for all, or both."""

    TEXT = "cluster barrier arrives {0.arrives} waits {0.waits}"

    arrives: bool
    waits: bool
