"""What can be asked of a device: the messages of each compute library, and their typed methods."""
