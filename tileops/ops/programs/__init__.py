"""The tile programs behind the operators."""
