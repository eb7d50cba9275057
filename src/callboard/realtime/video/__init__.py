"""Effects on video frames as a graph."""
