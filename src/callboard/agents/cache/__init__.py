"""``EmbeddingCache``: the vectors of texts, kept in one array and computed once."""
