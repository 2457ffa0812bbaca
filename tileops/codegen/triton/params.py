"""The parameters of a kernel: which tensors, sizes and scalars it takes, and in what order."""

from __future__ import annotations

from collections.abc import Sequence

from tileops.codegen.kernel_code import KernelParam, Specialization, scalar_type
from tileops.codegen.triton.text import Val, triton_type
from tileops.codegen.triton.writer import Names
from tileops.dtypes import INT64
from tileops.errors import InternalError
from tileops.ir.expr import Buffer, HostAttr, Var
from tileops.ir.program import Program

_KIND_ORDER = ("tensor", "workspace", "size", "scalar", "host")


def address_sizes(program: Program) -> frozenset[int]:
    """Ids of the run-time sizes that the *fast* kernel assumes to be divisible by 16.

    They are those that the call path checks: the factors of strides (and of a one-dimensional
    extent, whose mask cuts vectors) that are products of run-time sizes alone, and strides that are
    such sizes. A product with a constant has its divisibility from that.
    """
    dynamic = {s.var.id for s in program.sizes}
    found: set[int] = set()
    for buffer in [t.buffer for t in program.tensors()] + list(program.workspaces):
        shape = buffer.shape
        for start in range(1 if len(shape) > 1 else 0, len(shape)):
            factors = {e.id for e in shape[start:] if isinstance(e, Var)} & dynamic
            if len(factors) == len(set(shape[start:])):
                found |= factors
        found |= {e.id for e in buffer.strides or () if isinstance(e, Var) and e.id in dynamic}
    return frozenset(found)


class Params:
    """Collects the parameters that a kernel turns out to use."""

    def __init__(self, program: Program, spec: Specialization, names: Names) -> None:
        self._spec = spec
        self._names = names
        self._tensors = {t.buffer.id: n for n, t in enumerate(program.tensors())}
        self._workspaces = {b.id: n for n, b in enumerate(program.workspaces)}
        self._sizes = {s.var.id: n for n, s in enumerate(program.sizes)}
        self._scalars = {s.var.id: n for n, s in enumerate(program.scalars())}
        self._aligned_sizes = address_sizes(program)
        self._used: dict[tuple[str, int | str], KernelParam] = {}
        self._views: dict[int, Buffer] = {}
        self._placed: dict[int, str] = {}
        # The user's tensors, sizes and scalars get their names first, whether used or not.
        tensors = [t.buffer for t in program.tensors()]
        self._reserved = {b.id: names.fresh(b.name) for b in (*tensors, *program.workspaces)}
        scalars = [*(s.var for s in program.sizes), *(s.var for s in program.scalars())]
        self._reserved |= {v.id: names.fresh(v.name) for v in scalars}

    def place(self, buffer: Buffer, name: str) -> None:
        """Let the variable ``name`` of the kernel point to a buffer in memory."""
        self._placed[buffer.id] = name

    def alias(self, view: Buffer, source: Buffer) -> None:
        """Let ``view`` name the memory of the global buffer ``source``."""
        self._views[view.id] = source

    def pointer(self, buffer: Buffer) -> str:
        """The text of the pointer to a global buffer or to a view of one."""
        if buffer.id in self._placed:
            return self._placed[buffer.id]
        source = self._views.get(buffer.id)
        if source is not None:
            text = self.pointer(source)
            if source.dtype == buffer.dtype:
                return text
            return f"{text}.to(tl.pointer_type({triton_type(buffer.dtype)}), bitcast=True)"
        kind, index = ("tensor", self._tensors.get(buffer.id))
        if index is None:
            kind, index = "workspace", self._workspaces.get(buffer.id)
        if index is None:
            raise InternalError(f"codegen: global buffer {buffer.name} is not a parameter")
        aligned = self._spec.fast or kind == "workspace"
        name = self._reserved[buffer.id]
        param = KernelParam(name, kind, index, "ptr", str(buffer.dtype), aligned=aligned)
        return self._use((kind, index), param)

    def is_size(self, var: Var) -> bool:
        """True for an extent or stride of a tensor that is known at run time only."""
        return var.id in self._sizes

    def scalar(self, var: Var) -> Val | None:
        """The value of a size or scalar argument; None for other variables."""
        if (index := self._sizes.get(var.id)) is not None:
            dtype = INT64 if self._spec.index64 else var.dtype
            aligned = self._spec.fast and var.id in self._aligned_sizes
            name, kind = self._reserved[var.id], scalar_type(dtype)
            param = KernelParam(name, "size", index, kind, aligned=aligned)
            return Val(self._use(("size", index), param), dtype)
        if (index := self._scalars.get(var.id)) is not None:
            param = KernelParam(self._reserved[var.id], "scalar", index, scalar_type(var.dtype))
            return Val(self._use(("scalar", index), param), var.dtype)
        return None

    def host(self, attr: HostAttr) -> Val:
        """The value of a device fact, evaluated at each call."""
        key = ("host", attr.name)
        if key not in self._used:
            name = self._names.fresh(attr.name)
            index = sum(1 for kind, _ in self._used if kind == "host")
            self._used[key] = KernelParam(name, "host", index, scalar_type(attr.dtype), value=attr)
        return Val(self._used[key].name, attr.dtype)

    def _use(self, key: tuple[str, int | str], param: KernelParam) -> str:
        return self._used.setdefault(key, param).name

    def finish(self, hidden: Sequence[KernelParam] = ()) -> tuple[KernelParam, ...]:
        """The parameters in order: tensors, workspaces, sizes, scalars, host facts.

        ``hidden`` are workspaces that the program does not name.
        """
        params = (*self._used.values(), *hidden)
        return tuple(sorted(params, key=lambda p: (_KIND_ORDER.index(p.kind), p.index)))
