"""How ops are executed: a folder for each backend, found by entry point and imported by the registry only."""
