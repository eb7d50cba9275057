"""Host side of actors in separate processes: holds the arrays of their calls, and copies arrays that they return."""
