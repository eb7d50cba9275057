"""Indexing by arrays, where views are not enough."""
