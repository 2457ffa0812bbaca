"""The interpreter: generated Triton text run on the CPU, with ``print`` and ``breakpoint``."""
