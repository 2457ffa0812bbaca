"""Tests of the C++ core without torch and without Python, under sanitizers."""
