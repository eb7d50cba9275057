"""``callboard serve``: an app on a port, and its output while it runs."""
