"""Event loops and threads that actors run on, delivery of messages to them, and waits of threads without a loop."""
