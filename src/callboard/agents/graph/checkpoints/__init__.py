"""Checkpoints of graphs in a journal."""
