"""Owns tensors at addresses that the kernel reads: integers made into pointers."""

from __future__ import annotations

from collections.abc import Callable

from tileops.codegen.triton.context import Context
from tileops.codegen.triton.text import ATOM, Val, triton_type
from tileops.ir.expr import Expr
from tileops.ir.stmt import AddressView


def emit_address_view(
    ctx: Context, stmt: AddressView, emit: Callable[[Context, Expr], Val]
) -> None:
    """Let the buffer name the memory at an address, which is one for all lanes.

    UnsupportedConstructError where each point of a nest has an address of its own.
    """
    address = emit(ctx, stmt.address)
    if not address.is_scalar or ctx.space.rank:
        raise ctx.unsupported(
            f"`{stmt.buffer.name}` at an address of each point of T.Parallel; call T.make_tensor "
            "before the loop"
        )
    kind = f"tl.pointer_type({triton_type(stmt.buffer.dtype)})"
    pointer = Val(f"{address.at(ATOM)}.to({kind})", stmt.buffer.dtype)
    ctx.params.place(stmt.buffer, ctx.temporary(stmt.buffer.name, pointer).text)
