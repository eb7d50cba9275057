"""Several nodes of a graph as one op: products with what follows them, attention."""
