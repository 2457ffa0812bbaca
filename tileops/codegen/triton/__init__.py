"""Generation of Triton code: tile IR to the text of one readable ``kernel.py``."""

from tileops.codegen.triton.module import generate, num_warps
from tileops.codegen.triton.params import address_sizes

__all__ = ["address_sizes", "generate", "num_warps"]
