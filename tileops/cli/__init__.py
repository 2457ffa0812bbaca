"""The command line, ``python -m tileops``: environment, cache, tunings, checks of files."""
