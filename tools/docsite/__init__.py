"""``scripts/docs``: the site of the documentation, from the pages of the repository."""
