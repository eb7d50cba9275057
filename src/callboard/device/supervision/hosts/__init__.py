"""Hosts: the child process, thread or event loop that runs a context, and the connection to it."""
