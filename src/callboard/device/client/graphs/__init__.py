"""Recordings: chains of ops that are called once and replayed as one."""

from callboard.device.client.graphs.recording import Recording, RecordingStats

__all__ = ["Recording", "RecordingStats"]
