"""Documents and how they are cut into passages."""
