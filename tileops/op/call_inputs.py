"""The inputs of a call: scalars as the op takes them, and errors for what torch refuses."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotDifferentiableError,
    is_of_torchs_parser,
)
from tileops.op.spec import ArgSpec, OpSpec
from tileops.optional_torch import torch

# An op takes integers as 64-bit signed ones, whatever the parameter's dtype.
_LEAST, _MOST = -(2**63), 2**63 - 1
_SYMBOLIC: dict[type, type] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}
# What torch's parser accepts for the types of schemas.
_TAKEN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int, torch.SymInt),
    "float": (float, int, torch.SymFloat, torch.SymInt),
    "bool": (bool, int, torch.SymBool),
    "int[]": (list, tuple, int),
    "device": (torch.device, str),
}


def kind_of(dtype: str) -> type:
    """The Python type that a run-time scalar of ``dtype``, a name, has in the op's schema."""
    # Called in traced regions, where Dynamo of torch 2.11 cannot make an instance of DType.
    return bool if dtype == "bool" else float if "float" in dtype else int


def scalar(where: str, dtype: str, value: Any) -> Any:  # noqa: ANN401
    """``value`` as the op takes it for a run-time scalar of ``dtype``; ``where`` begins the errors.

    An integer parameter takes integers and bools, a float parameter also floats, a bool parameter
    bools, 0 and 1; NumPy scalars and zero-dimensional tensors count as their number. Values that
    torch would truncate or drop (a NumPy float for an integer, None for a bool) raise
    ArgumentTypeError, and those beyond int64 or float64 ArgumentError.
    """
    kind = kind_of(dtype)
    if isinstance(value, (_SYMBOLIC[kind], torch.fx.Proxy)):  # torch.fx.symbolic_trace's
        return value
    # In a traced region only the type of a symbolic number is known.
    number = value if type(value) in _SYMBOLIC else _number(where, dtype, value)
    if kind is float and isinstance(number, (int, float)):
        try:
            return float(number)
        except OverflowError:
            raise ArgumentError(
                f"{where}: expected a value of {dtype}, got {shown(number)}"
            ) from None
    if isinstance(number, float) or not hasattr(type(number), "__index__"):
        raise ArgumentTypeError(f"{where}: expected a value of {dtype}, got {shown(value)}")
    integer = operator.index(number)
    if kind is bool and integer not in (0, 1):
        raise ArgumentError(f"{where}: expected True or False, got {shown(integer)}")
    if not is_carried(integer):
        hint = " below 2^63" if dtype == "uint64" and integer > 0 else ""
        raise ArgumentError(f"{where}: expected a value of {dtype}{hint}, got {shown(integer)}")
    return bool(integer) if kind is bool else integer


def _number(where: str, dtype: str, value: Any) -> Any:  # noqa: ANN401
    """The number in a zero-dimensional tensor, array or NumPy scalar; other values as they are."""
    if not hasattr(value, "item") or not hasattr(value, "ndim"):
        return value
    if value.ndim > 0:  # an array of one element has an __index__, too
        raise ArgumentTypeError(
            f"{where}: expected a value of {dtype}, got {type(value).__name__} of shape "
            f"{tuple(value.shape)}"
        )
    if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
        raise ArgumentTypeError(
            f"{where}: expected a value of {dtype}, got a tensor that requires grad; a number "
            "would lose its gradient; pass its item()"
        )
    return value.item()


def is_carried(integer: int) -> bool:
    """Whether the number fits into a schema's int, which has 64 bits."""
    return _LEAST <= integer <= _MOST


def shown(value: object) -> str:
    """A value in an error: the number itself, or the type of another value."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype}"
    if isinstance(value, (bool, int, float, complex)):
        return str(value)
    return type(value).__name__


def check_names(
    title: str, args: Sequence[ArgSpec], count: int, keywords: Collection[str], made: Sequence[str]
) -> None:
    """ArgumentTypeError unless ``count`` values by position and ``keywords`` give each input once.

    ``made`` are the tensors that the callee allocates; a call may not give them.
    """
    inputs = [a for a in args if a.role in ("tensor", "scalar")]
    if count > len(inputs):
        hint = f"; {', '.join(made)}: made and returned by the call" if made else ""
        raise ArgumentTypeError(
            f"{title}: expected at most {len(inputs)} arguments, got {count}{hint}"
        ) from None
    positional = [a.name for a in inputs[:count]]
    for name in keywords:
        if name in positional:
            raise ArgumentTypeError(f"{title}: argument '{name}' given twice") from None
        if all(name != a.name for a in args):
            raise ArgumentTypeError(f"{title}: unexpected argument '{name}'") from None
    for arg in inputs[count:]:
        if arg.name not in keywords and (arg.is_required or not arg.kind.endswith("?")):
            raise ArgumentTypeError(f"{title}: missing argument '{arg.name}'") from None


def explain(
    title: str,
    given: Mapping[str, Any],
    optional: Collection[str],
    scalars: Mapping[str, str],
    error: Exception,
) -> None:
    """Raise what is wrong with the inputs of a call that failed before it reached the op, if it is.

    ``given`` are the inputs by name, ``scalars`` the dtypes of the scalars among them. torch's own
    words for a list in place of a tensor, say, do not tell what to do.
    """
    for name, value in given.items():
        if name in scalars:
            scalar(f"{title}: argument '{name}'", scalars[name], value)
        elif value is not None or name not in optional:
            refuse_tensor(title, name, value)
    if "setup_context" in str(error) and torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotDifferentiableError(
            f"{title}: torch.func's transforms (grad, vjp, jacrev) do not take the gradients of "
            "custom operators; use torch.autograd.grad or backward()"
        ) from None
    if isinstance(error, RuntimeError) and is_of_torchs_parser(error):
        raise ArgumentTypeError(str(error)) from None


def refuse_tensor(title: str, name: str, value: object) -> None:
    """Raise for a value that is not a dense strided tensor."""
    where = f"{title}: argument '{name}'"
    if not isinstance(value, torch.Tensor):
        hint = ""
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            hint = "; many tensors go in as one tensor of their addresses, T.Tensor((n,), T.ptr)"
        raise ArgumentTypeError(f"{where}: expected a tensor, got {type(value).__name__}{hint}")
    found = ""
    if value.is_nested:
        found = "a nested one; pass its values() and offsets()"
    elif value.layout != torch.strided:
        found = f"one of layout {value.layout}; pass its parts or its to_dense()"
    elif value.is_quantized:
        found = "a quantized one; pass its int_repr()"
    if found:
        raise ArgumentError(f"{where}: expected a dense strided tensor, got {found}")


def explain_op(
    spec: OpSpec, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> None:
    """Raise what is wrong with a call by ``torch.ops`` if torch's error names no argument.

    That is the dispatcher's for None in place of a tensor, and pybind11's for what no schema takes.
    """
    values = (*args, *kwargs.values())
    is_a_cast = (
        isinstance(error, RuntimeError)
        and "Unable to cast" in str(error)
        and (not is_of_torchs_parser(error) or any(isinstance(v, torch.dtype) for v in values))
    )
    if not isinstance(error, NotImplementedError) and not is_a_cast:
        return
    given = spec.named(args, kwargs)
    for arg in spec.args:
        value = given.get(arg.name)
        if arg.name not in given or (value is None and arg.kind.endswith("?")):
            continue
        kind = arg.kind.removesuffix("?")
        if kind == "tensor" and not isinstance(value, torch.Tensor):
            refuse_tensor(spec.title, arg.name, value)
        elif kind in _TAKEN and not isinstance(value, _TAKEN[kind]):
            hint = ""
            if isinstance(value, torch.dtype):
                hint = f"; pass {str(value).removeprefix('torch.')!r}, or call the Python function"
            raise ArgumentTypeError(
                f"{spec.title}: argument '{arg.name}': expected {kind}, got "
                f"{type(value).__name__}{hint}"
            ) from None
