"""Serving blueprints: servers that keep one contract for the requests that they are given."""
