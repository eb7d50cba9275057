"""NumPy's own tests, run against ``dev.np``: ``python -m numpy_tests``."""
