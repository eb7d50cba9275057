"""``callboard load``: sends requests to an endpoint, and reports their results and times."""
