"""Streams of the CPU: worker threads, as of any backend whose calls return when the work is done."""

from callboard.core.backend.workers import Work, failure
from callboard.core.backend.workers import WorkerEvent as CpuEvent
from callboard.core.backend.workers import WorkerStream as CpuStream

__all__ = ["CpuEvent", "CpuStream", "Work", "failure"]
