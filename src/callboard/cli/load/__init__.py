"""``callboard load``: requests to an endpoint, how they ended and how long they took."""
