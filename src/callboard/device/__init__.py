"""Devices: the stable address, the hosts that contexts live in, and the op line between them."""
