"""The thread of one resident actor: its instance, its calls, its event loop, and what its ``HostContext`` asks for."""
