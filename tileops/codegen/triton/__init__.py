"""Generation of Triton code: tile IR to the text of one readable ``kernel.py``."""

from tileops.codegen.triton.module import generate, num_warps

__all__ = ["generate", "num_warps"]
