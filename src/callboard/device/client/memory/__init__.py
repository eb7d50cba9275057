"""Kinds of memory beside a device's own arrays: leased page-locked buffers, managed memory, memory of other processes."""
