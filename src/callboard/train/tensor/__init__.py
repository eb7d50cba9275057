"""Tensor parallelism: the layers of one model cut over several devices."""
