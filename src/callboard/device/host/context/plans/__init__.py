"""Plans: how the host executes a signature, worked out once and kept while it is used."""
