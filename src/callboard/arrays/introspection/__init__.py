"""Statements of the namespace about itself: capabilities, and errors for names it lacks."""
