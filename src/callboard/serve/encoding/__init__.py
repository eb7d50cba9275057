"""Encoding of inference requests and responses."""
