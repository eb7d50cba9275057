"""Functions that compare elements: searches, sorts, sets."""
