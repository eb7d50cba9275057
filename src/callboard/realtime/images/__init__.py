"""Filters of images: correlations with small kernels, in chains."""
