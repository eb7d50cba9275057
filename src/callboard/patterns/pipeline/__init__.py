"""Pipelines: items through stages, several of them in flight."""
