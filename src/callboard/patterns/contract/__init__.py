"""The callers' side of all serving blueprints: ways to submit a request, its options, and the parts of an answer."""
