"""A package whose wheel carries its ops' kernels."""

from userops.programs import leaky, scores

__all__ = ["leaky", "scores"]
