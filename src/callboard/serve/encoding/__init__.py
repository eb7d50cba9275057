"""Inference requests and responses on the wire."""
