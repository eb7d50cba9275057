"""``callboard doctor``: usable backends and libraries of this machine, and reasons for the others."""
