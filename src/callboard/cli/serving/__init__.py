"""``callboard serve``: an app on a port, and what it shows meanwhile."""
