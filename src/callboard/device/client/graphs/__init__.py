"""Recordings: chains of ops that are called once and replayed as one."""

from callboard.device.client.graphs.recording import Recording
from callboard.device.client.graphs.services import RecordingStats

__all__ = ["Recording", "RecordingStats"]
