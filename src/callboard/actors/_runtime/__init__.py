"""What is behind an actor reference: cells, their lanes and their life. Nothing in it is for users."""
