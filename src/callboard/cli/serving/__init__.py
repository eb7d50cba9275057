"""``callboard serve``: serves an app on a port, and prints its activity."""
