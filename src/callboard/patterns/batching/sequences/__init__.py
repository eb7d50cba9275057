"""Sequences with state: requests of one sequence run in order, on the worker that has its state."""
