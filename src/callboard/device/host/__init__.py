"""Host side of a device, in a child process or a thread: the context, admission of calls, and resident actors."""
