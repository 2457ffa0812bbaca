"""``language.dtypes``: the dtypes of the language under the names of TileLang's module."""

from __future__ import annotations

import torch

from tileops import language as T
from tileops.dtypes import is_dtype_like, names, storage_names
from tileops.language.value import dtype as dtype

_TORCH_DTYPE_TO_STR: dict[torch.dtype, str] = {
    getattr(torch, storage): name
    for name in reversed(names())
    for storage in storage_names(T.dtype(name))[:1]
    if hasattr(torch, storage)
}


def get_tvm_dtype(value: object) -> T.dtype:
    """The dtype that a text, a torch dtype, a numpy dtype or a Python type names."""
    return T.dtype(value)


def _is_any_dtype(value: object) -> bool:
    return is_dtype_like(value)


def __getattr__(name: str) -> T.dtype:
    if name in names():
        return T.dtype(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
