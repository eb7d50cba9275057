"""Continuous batching: sequences join and leave a batch between the steps of a function."""
