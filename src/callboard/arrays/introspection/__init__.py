"""Introspection of the namespace: its capabilities, and errors for names that it lacks."""
