"""How much of a matrix that is made in parts is there at a time."""

from __future__ import annotations

# Of the logits of a chunk of rows, and of their gradients.
CHUNK_BYTES = 1 << 28
