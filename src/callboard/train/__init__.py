"""Training blueprints: trainers whose steps survive the loss of a device; their engine is PyTorch (extra ``train``)."""
