"""An app on a port: uvicorn's life around it, and the encodings of bodies."""
