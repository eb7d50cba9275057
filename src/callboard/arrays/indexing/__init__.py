"""Indexing by arrays: selections that no view can express."""
