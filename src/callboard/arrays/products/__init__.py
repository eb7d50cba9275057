"""Products of matrices and tensors, and functions built from many products."""
