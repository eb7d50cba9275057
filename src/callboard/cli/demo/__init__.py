"""``callboard demo``: a job that loses its context in the middle and continues."""
