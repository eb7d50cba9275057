"""Host side of resident actors: runs them in the context host."""
