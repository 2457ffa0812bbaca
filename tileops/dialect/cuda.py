"""``tilelang.cuda``, a folder of modules; called, it is ``tileops.cuda``."""

from __future__ import annotations

from tileops.dialect.called_module import let_module_stand_for
from tileops.language.foreign import cubin, cuda, ptx

__all__ = ["cubin", "cuda", "ptx"]

__path__: list[str] = []  # imports of what is below it come here
let_module_stand_for(__name__, cuda)
