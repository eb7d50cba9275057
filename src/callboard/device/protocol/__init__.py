"""Shared by application and host: messages and their encoding, failures, arenas, values of resident actors' calls."""
