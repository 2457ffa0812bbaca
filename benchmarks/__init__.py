"""Benchmarks: one harness, a suite for each kind of machine, and their results."""
