"""Code generation: a specialised program to the text of its kernels, one package a target."""
