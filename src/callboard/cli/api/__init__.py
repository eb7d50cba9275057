"""``callboard api``: generates the typed methods of a library from its messages."""
