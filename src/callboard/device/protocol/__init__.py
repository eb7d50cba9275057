"""What both sides know: messages and their bytes, failures, arenas, and what travels to and from resident actors."""
