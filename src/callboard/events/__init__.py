"""The lower half of telemetry: a bounded ring of events, and the hooks that write to it. Imports no other package."""
