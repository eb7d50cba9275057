"""``callboard train``: a run of a trainer from the command line."""
