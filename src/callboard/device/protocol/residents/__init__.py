"""Resident actors in application and host: their base class, and the encoding of code, values and exceptions."""
