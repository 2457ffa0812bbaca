"""Python's ``print`` and ``breakpoint`` of a running program: values in the caller's process."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence

import torch

from tileops.codegen.kernel_code import KernelCode, LaunchCode
from tileops.errors import InternalError
from tileops.ir.expr import Expr, Region
from tileops.ir.program import Program
from tileops.ir.stmt import Inspect
from tileops.ir.walk import walk
from tileops.location import Location


class Inspections:
    """The prints and breakpoints of one launch, by the lines of its ``kernel.py``."""

    def __init__(
        self,
        program: Program,
        code: KernelCode,
        launch: LaunchCode,
        operands: Sequence[torch.Tensor | float],
    ) -> None:
        self._name = program.name
        self._lines = code.statements
        self._found = {s.origin: s for s in walk(program.launches) if isinstance(s, Inspect)}
        ids = [t.buffer.id for t in program.tensors()]
        self._operands = {
            ids[param.index]: operand
            for param, operand in zip(launch.params, operands, strict=True)
            if param.kind == "tensor"
        }

    def show(self, line: int, values: Sequence[torch.Tensor]) -> None:
        """Print the values, or stop where the program says ``breakpoint()``.

        ``line`` is the line of ``kernel.py`` that shows them.
        """
        stmt = self._found.get(self._lines.get(line))
        if stmt is None:
            raise InternalError(f"program {self._name}: line {line} shows nothing")
        shown = [self._shown(arg, v) for arg, v in zip(stmt.args, values, strict=True)]
        if stmt.names is None:
            sys.stdout.write(stmt.message.format(*shown))
            sys.stdout.flush()
        else:
            where = stmt.loc or Location("kernel.py", line)
            _stop(where, self._name, dict(zip(stmt.names, shown, strict=True)))

    def _shown(self, arg: Expr | Region, value: torch.Tensor) -> object:
        """A tile as a tensor of its own extents, a scalar as Python's number."""
        if not isinstance(arg, Region):
            return value.reshape(-1)[0].item()
        operand = self._operands.get(arg.buffer.id)
        if isinstance(operand, torch.Tensor):
            if arg.dtype.bits < 8 or value.element_size() != operand.element_size():
                return value  # decoded elements, in the tensor's own shape
            return torch.as_strided(value.view(operand.dtype), operand.shape, operand.stride())
        if arg.dtype.bits >= 8:  # a pass may have widened or narrowed the tile
            value = value.to(arg.dtype.as_torch())
        extents = arg.static_extents()
        if extents is None:
            return value
        # What is the same along a dimension has extent 1 there; padding follows the elements.
        inner = [extents[d] for d in arg.squeezed()]
        value = value.reshape(value.shape if value.dim() == len(inner) else [1] * len(inner))
        for d, extent in enumerate(inner):
            value = value.narrow(d, 0, min(extent, value.shape[d]))
        return value.expand(inner).reshape(extents)


def _stop(where: Location, name: str, values: dict[str, object]) -> None:
    """Call ``breakpoint()`` as if at ``where``, with ``values`` as the variables."""
    text = "\n" * (where.line - 1) + "breakpoint()"
    code = compile(text, where.file, "exec").replace(co_name=name)
    exec(code, {"__builtins__": builtins, "__name__": name, **values})
