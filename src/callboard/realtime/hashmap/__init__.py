"""A hash map on a device."""
