"""The passes from IR to IR, the analyses that they share, and ``pipeline``, their order."""
