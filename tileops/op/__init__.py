"""Owns what a torch op is: its schema, shape rules, fake, gradient rule, name and registration."""
