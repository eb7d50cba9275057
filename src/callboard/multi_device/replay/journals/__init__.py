"""Journals, which store records: a protocol of six methods, and its implementations."""
