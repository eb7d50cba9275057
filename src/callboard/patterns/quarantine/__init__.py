"""Quarantine: a request that was in flight at two losses runs alone, and is refused if it loses the context again."""
