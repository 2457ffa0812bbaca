"""An abstract Hopper multiprocessor that runs the roles of a schedule, for the checker."""
