"""torch ops: their schema, shape rules, fake, gradient rule, name and registration."""
