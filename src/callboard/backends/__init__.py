"""Execution of ops: one package per backend, found by entry point and imported by the registry only."""
