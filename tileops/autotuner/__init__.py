"""Tuning: which configuration of a program is fastest, found safely and kept."""
