"""Recordings in a context host: their plans and replays."""

from callboard.device.host.context.admission.graphs.graphs import GraphActor, Graphs

__all__ = ["GraphActor", "Graphs"]
