"""Host side of actors in separate processes: holding arrays for them, and opening theirs."""
