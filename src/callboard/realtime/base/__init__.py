"""What all simulations share: steps, snapshots, losses, pace, files."""
