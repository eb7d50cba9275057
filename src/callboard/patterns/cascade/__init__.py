"""Cascades: a small model answers requests that it is confident of, a larger one the rest."""
