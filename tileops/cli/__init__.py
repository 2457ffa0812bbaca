"""The command line, ``python -m tileops``: what is installed, and what the cache holds."""
