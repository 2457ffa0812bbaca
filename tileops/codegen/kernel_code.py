"""What code generation hands to a compiler: text, entry points and parameter lists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tileops.dtypes import DType
from tileops.errors import InternalError
from tileops.ir.expr import Buffer, Expr
from tileops.ir.threads import CUDA_HEADERS as CUDA_HEADERS
from tileops.location import Location

# The first line of each piece of inline assembly says what it computes. The interpreter goes by it.
RECIPROCAL = "// the reciprocal of a divisor"
QUOTIENT = "// quotients of dividends, divisors and their reciprocals"
NIBBLES = "// the numbers in the halves of bytes"


@dataclass(frozen=True)
class TensorMapSpec:
    """A host-made tensor descriptor: the box that one copy moves, in elements, outermost first.

    ``swizzle`` is that of the shared layout, in bytes. ``problem`` says which boxes do not work.
    The driver refuses a map with an extent of 0, so the call fails unless its grid is empty too.

    The maps of foreign kernels are ``foreign``: triton, gluon or cuda. Triton's and Gluon's read
    the extents and strides that follow a map, Gluon's have a ``layout``, and the code says which
    swizzle they have. ``nans``: what is outside is NaN. ``tf32``: f32 is rounded to tf32.
    """

    box: tuple[int, ...]
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]  # elements; the last is 1
    swizzle: int = 128
    foreign: str = ""
    layout: str = ""
    nans: bool = False
    tf32: bool = False

    def problem(self, dtype: str) -> str | None:
        """Why no copy moves this box of ``dtype``, or None.

        Triton 3.6 to 3.9 end the process (a C++ assertion) for most of these.
        """
        if dtype == "bool":
            return "a tensor map has no bool elements"
        if not 1 <= len(self.box) <= 5 or any(n < 1 or n & (n - 1) for n in self.box):
            return f"a box has 1 to 5 dimensions, each a power of 2: {self.box}"
        row = self.box[-1] * DType(dtype).bytes
        if row < 16:
            return f"a row of a box has at least 16 bytes, this one {row}"
        if self.swizzle not in (0, 32, 64, 128):
            return f"a swizzle is 0, 32, 64 or 128 bytes, not {self.swizzle}"
        if self.swizzle > 0 and (row < self.swizzle or math.prod(self.box[:-1]) < 8):
            return f"a box with swizzle {self.swizzle} has 8 rows of as many bytes: {self.box}"
        return None


@dataclass(frozen=True)
class KernelParam:
    """One run-time parameter of a launch.

    ``kind`` is tensor, workspace, size, scalar, host, number, tensormap or null. ``index`` counts
    within the kind: tensors as in ``Program.tensors()``, workspaces as in ``Program.workspaces``,
    sizes as in ``Program.sizes``, scalars as in ``Program.scalars()``; a tensormap's index is that
    of its tensor. ``host`` is an expression evaluated per call (``value``), ``number`` a float that
    every call passes (``number``). ``type`` is ptr, i1, i8 ... i64, u8 ... u64, f16, bf16, f32,
    f64, or tensordesc for a tensormap; ``dtype`` is the element type of a pointer or of a described
    tensor. ``aligned``: the pointer is 16-byte aligned, or the integer divisible by 16, in every
    call of this entry.
    """

    name: str
    kind: str
    index: int
    type: str
    dtype: str | None = None
    aligned: bool = False
    value: Expr | None = None
    tensormap: TensorMapSpec | None = None
    number: float = 0.0

    @property
    def width(self) -> int:
        """How many parameters of the machine code this is.

        Triton passes a descriptor's extents and strides after its map; the text does not read them.
        """
        if self.tensormap is None or self.tensormap.foreign == "cuda":
            return 1
        return 1 + 2 * len(self.tensormap.box)


def scalar_type(dtype: DType) -> str:
    """The ``KernelParam.type`` of a scalar; InternalError for a dtype that scalars do not have."""
    if dtype.bits < 8 or dtype.is_fp8:
        raise InternalError(f"codegen: scalar argument of type {dtype}")
    return {"bool": "i1", "tfloat32": "f32"}.get(dtype, dtype.short)


@dataclass(frozen=True)
class ForeignKernel:
    """A kernel that the program's author brought, which is no part of the text.

    ``digest`` finds it (``foreign.registry``). ``constants`` are its compile-time arguments: the
    names of parameters, each with the text of its value. ``written`` are the parameters whose
    memory it may write. ``options`` are those of the launch that its author gave. ``program`` and
    ``place`` say in errors which launch it is.
    """

    digest: str
    constants: tuple[tuple[str, str], ...] = ()
    written: frozenset[str] = frozenset()
    options: tuple[tuple[str, str], ...] = ()
    program: str = ""
    place: Location | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class CudaText:
    """A launch in CUDA C++, which is a text of its own.

    ``threads`` are those of a block, ``shared_bytes`` what the launch gives it of shared memory.
    ``includes_cuda``: the text includes headers of CUDA's, or of an author's source.
    ``statements`` are as in ``KernelCode``.
    """

    source: str
    threads: int
    shared_bytes: int
    includes_cuda: bool = False
    statements: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchCode:
    """One launch: its entry point in the text, its parameters in order, its flattened grid.

    ``language`` of code for a GPU is triton, gluon or cuda; ``cuda`` is the text of the last. A
    gluon entry is a ``@gluon.jit`` function, the text imports what it needs, and ``num_warps`` are
    those of the default partition: the text gives the others to ``gl.warp_specialize``. A gluon
    launch is compiled as it is: nothing lowers its stages or adds warps.

    ``cluster``: thread blocks that run one program together (``gl.num_ctas()``); ``grid`` counts
    programs. A launch of clusters takes no tensor map. ``dependent``: the launch may start before
    the one ahead of it on the stream ends, so its text waits (``gdc_wait``) before it touches
    memory that earlier launches use. ``notes`` say how the
    launch was generated, for people.

    ``foreign``: the launch is of a kernel that is not in the text. Only such launches have
    ``more_grid``, the second and third extent of the grid. Those and launches in CUDA C++ may be
    ``cooperative``: all blocks run at once.
    """

    entry: str
    params: tuple[KernelParam, ...]
    grid: Expr
    num_warps: int = 0  # GPU
    num_stages: int = 0  # GPU: the deepest pipelined loop, the value a compiler may lower to fit
    max_registers: int = 0  # GPU: those of a thread, as long as they spill little; 0 for any number
    scratch_bytes: int = 0  # CPU: arena per thread
    grain: int = 1  # CPU: the fewest blocks that are worth a thread's while
    shared_buffers: tuple[Buffer, ...] = ()  # for SharedMemoryError
    language: str = "triton"
    cluster: int = 1
    dependent: bool = False
    notes: tuple[str, ...] = ()
    foreign: ForeignKernel | None = None
    cuda: CudaText | None = None
    more_grid: tuple[Expr, ...] = ()
    cooperative: bool = False


@dataclass(frozen=True)
class KernelCode:
    """Generated text with its launches in program order. ``language`` is triton or cpp.

    ``statements`` maps a line of the text (1-based) to the number of the statement it came from.
    ``workspaces`` are global buffers that the text needs beyond the program's own; parameters count
    them after those.
    """

    language: str
    source: str
    launches: tuple[LaunchCode, ...]
    statements: dict[int, int] = field(default_factory=dict)
    workspaces: tuple[Buffer, ...] = ()


@dataclass(frozen=True)
class Specialization:
    """Facts that code generation may assume.

    ``fast``: every pointer is 16-byte aligned and every run-time size that feeds an address is
    divisible by 16.
    ``index64``: some tensor can reach ``INDEX32_LIMIT`` elements, so offsets and sizes are 64-bit.
    """

    fast: bool = False
    index64: bool = False
