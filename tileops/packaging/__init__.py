"""Packages with kernels inside: what builds call to compile a project's ops into its wheel."""
