"""Code of both sides: messages and their encoding, failures, arenas, and the values of resident actors' calls."""
