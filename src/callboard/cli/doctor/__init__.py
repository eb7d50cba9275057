"""``callboard doctor``: what can be used on this machine, and why not."""
