"""Resident actors: the side that runs them, in the context host."""
