"""The nouns that every backend shares: dtypes, layouts, refs, ops, errors, and the backend boundary."""
