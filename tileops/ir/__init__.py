"""The tile IR: immutable typed nodes, their builder, printer, walkers and verifier."""
