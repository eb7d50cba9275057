"""Cascades: a small model answers what it is sure of, a larger one the rest."""
