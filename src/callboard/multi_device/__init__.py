"""Many devices of one program: which of them gets the next piece of work, and which of them keeps an entity."""
