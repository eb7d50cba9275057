"""What callers of all serving blueprints see: the ways to submit a request, its options, and the parts of an answer."""
