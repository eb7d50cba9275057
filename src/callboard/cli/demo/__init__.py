"""``callboard demo``: a real job that loses its context in the middle and continues."""
