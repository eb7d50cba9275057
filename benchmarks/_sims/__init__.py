"""Sections of benchmarks/realtime.py: a blueprint each, with its peers where they are installed."""
