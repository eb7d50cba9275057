"""What makes simulations faster on a CPU: engines, threads, code compiled by Numba and kept on disk."""
