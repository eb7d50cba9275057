"""Neighbours of points on a device."""
