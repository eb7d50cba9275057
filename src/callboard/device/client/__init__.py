"""Application side of a device: its handle, the sending of its calls, and callers of resident actors."""
