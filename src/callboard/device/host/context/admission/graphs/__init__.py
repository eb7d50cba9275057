"""Recordings in a context host: their plans, and how they are replayed."""

from callboard.device.host.context.admission.graphs.graphs import GraphActor, Graphs

__all__ = ["GraphActor", "Graphs"]
