"""Loops and threads: on which one an actor runs, how a message reaches it, how a thread without a loop waits."""
