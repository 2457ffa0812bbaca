"""Signatures read from source: a program's mode and the kinds of its parameters."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType

from tileops.dtypes import aliases
from tileops.dtypes import names as dtype_names
from tileops.errors import ProgramSyntaxError
from tileops.frontend.scopes import own_nodes
from tileops.frontend.source import ByCode, function_tree, location_of
from tileops.language.value import dtype
from tileops.location import Location

_TENSOR_TYPES = ("Tensor", "StridedTensor", "Buffer", "ptr")
_EAGER_MARKS = ("Kernel", "const", "empty", "alloc_global", "ClusterKernel", "CUDASourceCodeKernel")
_DTYPES = frozenset((*dtype_names(), *aliases()))
_BUILTIN_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True)
class ParamInfo:
    """One parameter. ``kind``: tensor, scalar (a run-time number) or static (a compile-time value).

    ``annotation`` is the dtype's name for a scalar, the annotation's text for a tensor, and the
    annotation itself for a static parameter (``inspect._empty`` where there is none, text where it
    is not evaluated).
    """

    name: str
    kind: str
    default: object
    annotation: object


@dataclass(frozen=True)
class Signature:
    """The mode, ``eager`` or ``lazy``, and the parameters of a program, read from its source."""

    mode: str
    params: tuple[ParamInfo, ...]


@dataclass(frozen=True)
class _Facts:
    """What the tree alone says, without the function's defaults and globals; found once.

    ``in_body`` has the first ``name: annotation`` without a value of each name.
    """

    mode: str
    in_body: dict[str, ast.expr]
    in_signature: dict[str, ast.expr | None]


_known = ByCode[_Facts]()


def _facts(func: FunctionType) -> _Facts:
    found = _known.get(func.__code__)
    if found is None:
        tree = function_tree(func)
        nodes = list(own_nodes(tree.body))
        mode = "lazy" if _is_lazy(tree, nodes) else "eager"
        in_body: dict[str, ast.expr] = {}
        for node in nodes if mode == "eager" else ():
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=None):
                    in_body.setdefault(name, node.annotation)
        found = _Facts(mode, in_body, {a.arg: a.annotation for a in _parameters(tree)})
        found = _known.put(func.__code__, found)
    return found


def signature_of(func: FunctionType) -> Signature:
    """The signature of ``func``, which is not run; ProgramSyntaxError where it has no source."""
    facts = _facts(func)
    params = []
    for name, parameter in inspect.signature(func).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ProgramSyntaxError(
                f"`{func.__name__}` has the parameter `{parameter}`; each parameter of a program "
                "has a name",
                location=location_of(function_tree(func), func.__code__.co_filename),
            )
        kind, annotation = "static", parameter.annotation
        if isinstance(annotation, str):
            annotation = _BUILTIN_TYPES.get(annotation, annotation)
        if facts.mode == "eager":
            node = facts.in_body.get(name, facts.in_signature.get(name))
            kind = _kind_of(func, node)
            if kind == "tensor" and node is not None:
                annotation = ast.unparse(node)
            elif kind == "scalar":
                annotation = aliases().get(_last_name(node), _last_name(node))
        params.append(ParamInfo(name, kind, parameter.default, annotation))
    return Signature(facts.mode, tuple(params))


def location_of_parameter(func: FunctionType, name: str) -> Location:
    """Where the signature of ``func`` names a parameter."""
    tree = function_tree(func)
    node: ast.AST = next((a for a in _parameters(tree) if a.arg == name), tree)
    return location_of(node, func.__code__.co_filename)


def _parameters(tree: ast.FunctionDef) -> tuple[ast.arg, ...]:
    return (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)


def is_annotated_in_body(func: FunctionType, name: str) -> bool:
    """True if the body has ``name: annotation`` without a value."""
    return name in _facts(func).in_body


def _is_lazy(tree: ast.FunctionDef, nodes: Sequence[ast.AST]) -> bool:
    """True for a function that defines a prim_func, or only returns what another one built."""
    for node in nodes:
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        if any(_last_name(getattr(d, "func", d)) == "prim_func" for d in decorators):
            return True
    params = {a.arg for a in _parameters(tree)}
    for node in nodes:
        match node:
            case ast.Call(func=func) if _last_name(func) in _EAGER_MARKS:
                return False
            case ast.AnnAssign(target=ast.Name(id=name)) if name in params:
                return False
    if any(_kind_of(None, a.annotation) == "tensor" for a in tree.args.args):
        return False
    return any(
        isinstance(n, ast.Return) and isinstance(n.value, (ast.Call, ast.Name)) for n in nodes
    )


def _last_name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _kind_of(func: FunctionType | None, node: ast.expr | None) -> str:
    if node is None:
        return "static"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, (ast.Call, ast.Subscript)):
        head = node.func if isinstance(node, ast.Call) else node.value
        return "tensor" if _last_name(head) in _TENSOR_TYPES else "static"
    if _last_name(node) in _TENSOR_TYPES:
        return "tensor"
    if isinstance(node, ast.Attribute) and node.attr in _DTYPES:
        return "scalar"
    if isinstance(node, ast.Name) and func is not None:
        # `from tileops.language import int32`: a bare name is a scalar type only if it is the
        # language's.
        return "scalar" if isinstance(func.__globals__.get(node.id), dtype) else "static"
    return "static"
