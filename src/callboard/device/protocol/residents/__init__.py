"""Resident actors as both sides know them: their base class, and how code, values and exceptions travel."""
