"""``callboard doctor``: lists the usable backends and libraries of this machine, and why others are not usable."""
