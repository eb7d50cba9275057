"""Simulations to look at: players, a page that shows them live, and GIF files."""
