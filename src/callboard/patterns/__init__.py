"""Serving blueprints: servers with one common contract for requests."""
