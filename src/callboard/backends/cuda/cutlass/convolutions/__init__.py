"""Convolutions on a GPU: CUTLASS's implicit products where they are compiled, else patches and cuBLASLt."""
