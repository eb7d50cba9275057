"""The other side, in a child process or a thread: the context, its admission and its resident actors."""
