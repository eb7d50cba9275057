"""Pipelines: items pass through stages, with several items in flight."""
