"""Resident actors where they live: in the host of the context."""
