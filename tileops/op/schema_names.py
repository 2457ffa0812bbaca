"""Owns which names an op and its arguments can have in torch."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

import torch

from tileops.errors import ArgumentError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXPECTED = "expected ASCII letters, digits and _, not a keyword"


def check(namespace: str, name: str, arguments: Iterable[str], *, program: str) -> None:
    """ArgumentError for a name that torch's schemas or ``torch.ops`` lack, naming ``program``."""
    for part in (namespace, name):
        if not _is_name(part):
            raise ArgumentError(
                f"{program}: the name of an op: {_EXPECTED}, got {part!r}; pass name= to jit"
            )
    space = torch._ops._OpNamespace(namespace)
    if hasattr(type(space), name) or name in vars(space):
        raise ArgumentError(
            f"{program}: an op's name cannot be {name!r}, which torch.ops.{namespace} has for "
            "itself; pass name= to jit"
        )
    for argument in arguments:
        if not _is_name(argument):
            raise ArgumentError(
                f"{program}: the name of an argument of an op: {_EXPECTED}, got {argument!r}"
            )


def check_namespace(namespace: object, *, where: str) -> None:
    """ArgumentError for what cannot be a namespace of ``torch.ops``, naming ``where``."""
    if not isinstance(namespace, str) or not _is_name(namespace):
        raise ArgumentError(f"{where}: a namespace of ops: {_EXPECTED}, got {namespace!r}")


def _is_name(text: str) -> bool:
    is_word = keyword.iskeyword(text) or text == "NoneType"
    return _NAME.fullmatch(text) is not None and not is_word
