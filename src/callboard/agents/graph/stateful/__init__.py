"""State graphs: nodes read a shared state and return updates of it, in steps."""
