"""What all layers need: the ring of telemetry's events and its hooks, forks, names, exports. Imports no other."""
