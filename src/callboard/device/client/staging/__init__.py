"""Transfers that pass through host memory in parts."""
