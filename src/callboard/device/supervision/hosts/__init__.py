"""Hosts: where a context lives, a child process or a thread, and the line to it."""
