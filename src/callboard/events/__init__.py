"""What all layers need: a bounded ring of telemetry's events and their hooks, forks, names, exports. Imports no other package."""
