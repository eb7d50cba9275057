"""What is behind a model: the servers that its requests pass, and its versions."""
