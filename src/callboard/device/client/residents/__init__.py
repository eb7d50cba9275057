"""Addresses of resident actors, and calls to them."""
