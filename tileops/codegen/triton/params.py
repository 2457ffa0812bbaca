"""The parameters of a kernel: which tensors, sizes and scalars it takes, and in what order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tileops.codegen.kernel_code import KernelParam, Specialization, scalar_type
from tileops.codegen.triton.text import Val, triton_type
from tileops.codegen.triton.writer import Names
from tileops.dtypes import INT64
from tileops.errors import InternalError
from tileops.ir.address_sizes import address_sizes
from tileops.ir.expr import Buffer, HostAttr, Var
from tileops.ir.program import Program

_KIND_ORDER = ("tensor", "workspace", "size", "scalar", "host")


class Params:
    """Collects the parameters that a kernel turns out to use."""

    def __init__(self, program: Program, spec: Specialization, names: Names) -> None:
        self._spec = spec
        self._names = names
        self._aligned_sizes = address_sizes(program)
        self._used: dict[str, KernelParam] = {}
        self._views: dict[int, Buffer] = {}
        self._placed: dict[int, str] = {}
        # What the program names gets its name first, whether used or not.
        known: dict[str, Iterable[Buffer | Var]] = {
            "tensor": (t.buffer for t in program.tensors()),
            "workspace": program.workspaces,
            "size": (s.var for s in program.sizes),
            "scalar": (s.var for s in program.scalars()),
        }
        self._reserved = {
            item.id: (names.fresh(item.name), kind, index)
            for kind, items in known.items()
            for index, item in enumerate(items)
        }

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
        if buffer.id not in self._reserved:
            raise InternalError(f"codegen: global buffer {buffer.name} is not a parameter")
        name, kind, index = self._reserved[buffer.id]
        aligned = self._spec.fast or kind == "workspace"
        return self._use(KernelParam(name, kind, index, "ptr", str(buffer.dtype), aligned))

    def is_size(self, var: Var) -> bool:
        """True for an extent or stride of a tensor that is known at run time only."""
        return var.id in self._reserved and self._reserved[var.id][1] == "size"

    def scalar(self, var: Var) -> Val | None:
        """The value of a size or scalar argument; None for other variables."""
        if var.id not in self._reserved:
            return None
        name, kind, index = self._reserved[var.id]
        dtype, aligned = var.dtype, False
        if kind == "size":
            dtype = INT64 if self._spec.index64 else dtype
            aligned = self._spec.fast and var.id in self._aligned_sizes
        param = KernelParam(name, kind, index, scalar_type(dtype), aligned=aligned)
        return Val(self._use(param), dtype)

    def host(self, attr: HostAttr) -> Val:
        """The value of a device fact, evaluated at each call."""
        known = [p for p in self._used.values() if p.kind == "host"]
        found = next((p for p in known if p.value == attr), None)
        if found is None:
            name, kind = self._names.fresh(attr.name), scalar_type(attr.dtype)
            found = KernelParam(name, "host", len(known), kind, value=attr)
        return Val(self._use(found), attr.dtype)

    def _use(self, param: KernelParam) -> str:
        return self._used.setdefault(param.name, param).name

    def finish(self, hidden: Sequence[KernelParam]) -> tuple[KernelParam, ...]:
        """The parameters in order; ``hidden`` are workspaces that the program does not name."""
        params = (*self._used.values(), *hidden)
        return tuple(sorted(params, key=lambda p: (_KIND_ORDER.index(p.kind), p.index)))
