"""Quarantine: a request that was in flight at two losses runs alone, and is refused once it has killed alone."""
