"""Journals: where records are kept. A protocol of six methods, and what implements it."""
