"""Which engine executes a model, by measurement."""
