"""A pool of page-locked host buffers, with a limit and a queue of requests."""
