"""``callboard ask``: questions about documents."""
