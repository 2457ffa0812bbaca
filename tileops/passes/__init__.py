"""Passes over the tile IR, one function a file: analyses, and rewrites from IR to IR."""
