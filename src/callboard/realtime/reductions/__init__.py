"""Reductions of frames on a device."""
