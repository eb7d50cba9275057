"""Products of matrices and tensors, and what is made of many of them."""
