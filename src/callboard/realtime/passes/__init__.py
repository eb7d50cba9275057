"""Several passes over a frame, which share what they compute."""
