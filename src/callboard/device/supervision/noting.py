"""``note``: losses and recoveries of a device, as events of telemetry."""

from callboard.device.client.line.port import OpPort
from callboard.device.supervision.generations import Ordinals
from callboard.device.supervision.watch import DeviceEvent, Lost, Recovered
from callboard.events.kinds import LOST, RECOVERED, STOPPED
from callboard.events.ring import EVENTS, now

__all__ = ["note"]

LONGEST = 500
"""Characters of an error's text."""


def note(port: OpPort, ordinals: Ordinals, event: DeviceEvent) -> None:
    """Write the event, if telemetry is on."""
    ring = EVENTS.ring
    if ring is None:
        return
    if isinstance(event, Lost):
        suspects = [f"{each.op} ({each.request_key or each.where})" for each in port.unanswered.suspects]
        error = type(event.error).__name__, str(event.error)[:LONGEST]
        tags = dict(port.unanswered.lost_tags)
        rest = LOST, port.name, ordinals.of(event.generation), *error, event.failed, suspects, tags
        ring.append((next(ring.numbers), now(), *rest))
    elif isinstance(event, Recovered):
        number = ordinals.of(event.generation)
        ring.append((next(ring.numbers), now(), RECOVERED, port.name, number, event.standby, event.seconds))
    else:
        ring.append((next(ring.numbers), now(), STOPPED, port.name, str(event.error)[:LONGEST]))
