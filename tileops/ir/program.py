"""The root of the tile IR: a program with its parameters, sizes, workspaces and launches."""

from __future__ import annotations

from dataclasses import dataclass, field

from tileops.dtypes import DType
from tileops.ir.expr import Buffer, Var
from tileops.ir.expr import const_value as const_value
from tileops.ir.extern import Extern
from tileops.ir.stmt import Assert, Launch
from tileops.location import Location

# The id of the workspace that a GPU program's checks report to: one int64.
STATUS_ID = 1 << 28
# Tensors of fewer elements have offsets of 32 bits. A last tile may reach past the end of a tensor:
# those places are numbers of 32 bits too and must not wrap. No tile is longer than 2^24.
INDEX32_LIMIT = 2**31 - 2**24


@dataclass(frozen=True)
class TensorParam:
    """A tensor argument. ``allocated``: the callee allocates and returns it instead of taking it.

    The buffer's shape holds constants, size variables, or expressions over size variables; its
    strides are None where the tensor must be contiguous. ``raw``: any tensor is taken, and its
    address alone is used; the buffer is a row of bytes without extents. ``leading``: the first
    extent stands for any number of dimensions, whose product it is.
    """

    name: str
    buffer: Buffer
    allocated: bool = False
    raw: bool = False
    leading: bool = False
    loc: Location | None = field(default=None, compare=False, repr=False, kw_only=True)

    def text(self) -> str:
        """The canonical text."""
        marks = (" leading" if self.leading else "") + (" allocated" if self.allocated else "")
        return f"tensor {self.buffer.declaration}{marks}"


@dataclass(frozen=True)
class ScalarParam:
    """A run-time scalar argument: int, float or bool."""

    name: str
    var: Var
    loc: Location | None = field(default=None, compare=False, repr=False, kw_only=True)

    def text(self) -> str:
        """The canonical text."""
        return f"scalar {self.var}: {self.var.dtype.short}"


@dataclass(frozen=True)
class Size:
    """A size variable of the signature. ``kind``: "const" (specialised per value) or "dynamic"."""

    var: Var
    kind: str


@dataclass(frozen=True)
class DTypeVariable:
    """A dtype that each call decides: one of ``dtypes``, common to the tensors ``params``."""

    name: str
    dtypes: tuple[DType, ...]
    params: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A traced program, not yet compiled.

    ``sizes`` lists the size variables that remain symbolic in this trace (a specialised trace has
    only dynamic ones). ``returns`` are indices into ``params``, in the order in which the caller
    receives them; ``returns_tuple`` tells ``return (C,)`` from ``return C``. ``workspaces`` are
    global buffers allocated per call. ``options`` are sorted (name, value text) pairs that change
    code: pass configs and compile flags. ``is_tried``: the signature was found with numbers tried
    for the size constants, and a specialised trace is compared with it. ``dtype_vars`` are the
    dtype variables of a symbolic trace, which has one dtype of each; a specialised one has none.
    ``externs`` are the launches of foreign kernels, in order; each says where it is among
    ``launches``.
    """

    name: str
    params: tuple[TensorParam | ScalarParam, ...]
    sizes: tuple[Size, ...]
    workspaces: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    returns: tuple[int, ...]
    returns_tuple: bool = False
    host_asserts: tuple[Assert, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    is_tried: bool = False
    dtype_vars: tuple[DTypeVariable, ...] = ()
    externs: tuple[Extern, ...] = ()

    def tensors(self) -> tuple[TensorParam, ...]:
        """The tensor parameters, inputs and outputs, in order."""
        return tuple(p for p in self.params if isinstance(p, TensorParam))

    def scalars(self) -> tuple[ScalarParam, ...]:
        """The scalar parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, ScalarParam))
