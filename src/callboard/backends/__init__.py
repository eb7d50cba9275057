"""Execution of ops: a folder for each backend, found by entry point and imported by the registry only."""
