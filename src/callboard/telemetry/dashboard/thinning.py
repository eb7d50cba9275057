"""``frame_of``: a snapshot as the page gets it, thinned where there is much."""

import heapq
from typing import Any

import msgspec

from callboard.telemetry.export.texts import json_bytes
from callboard.telemetry.sampling.snapshot import Snapshot

__all__ = ["frame_of"]

ACTORS = 100
"""Actors that are sent: those with the longest mailboxes, then the busiest."""

OPS = 40
"""Tags of ops of a device that are sent: those that took the most time, then the most calls."""


def frame_of(snapshot: Snapshot) -> bytes:
    """One line of JSON: the snapshot, with ``left_out``: how many actors and ops it leaves out."""
    frame: dict[str, Any] = msgspec.structs.asdict(snapshot)
    actors = heapq.nlargest(ACTORS, snapshot.actors, key=lambda actor: (actor.depth, actor.busy, actor.handled))
    frame["actors"] = sorted(actors, key=lambda actor: actor.path)
    devices = []
    ops = 0
    for device in snapshot.devices:
        chosen = heapq.nlargest(OPS, device.ops.items(), key=lambda item: (item[1].seconds, item[1].submitted))
        ops += len(device.ops) - len(chosen)
        devices.append(msgspec.structs.replace(device, ops=dict(chosen)))
    frame["devices"] = devices
    frame["totals"] = {"actors": len(snapshot.actors), "mailboxes": sum(actor.depth for actor in snapshot.actors)}
    frame["left_out"] = {"actors": len(snapshot.actors) - len(actors), "ops": ops}
    return json_bytes(frame)
