"""Serving an app on a port: start and stop of uvicorn, and the encodings of bodies."""
