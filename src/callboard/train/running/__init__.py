"""A run: the order of the data, the loop over it, and what it leaves behind."""
