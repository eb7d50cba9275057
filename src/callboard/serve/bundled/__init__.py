"""Models that are ready to serve: a sentence encoder with its weights, and the app of the demo."""
