"""A sparse matrix that changes, on a device."""
