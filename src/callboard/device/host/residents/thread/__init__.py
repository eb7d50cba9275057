"""The thread of one resident actor: its instance, calls, event loop and ``HostContext`` requests."""
