"""``callboard top``: a live view of running applications."""
