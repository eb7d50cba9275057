"""What makes simulations faster on a CPU: engines, threads, code compiled by Numba, memory that is used again."""
