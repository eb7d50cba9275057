"""``note``, ``SupervisionLog``: losses and recoveries of a device, as events of telemetry and in the log."""

import logging
from collections.abc import MutableMapping
from typing import Any

from callboard.device.client.line.port import OpPort
from callboard.device.supervision.generations import Ordinals
from callboard.device.supervision.watch import DeviceEvent, Lost, Recovered
from callboard.events.kinds import LOST, RECOVERED, STOPPED
from callboard.events.ring import EVENTS, now

__all__ = ["SupervisionLog", "note"]

LONGEST = 500
"""Characters of an error's text."""


class SupervisionLog(logging.LoggerAdapter[logging.Logger]):
    """The logger ``callboard.device``; records name the device and the ordinal of its newest context.

    Args:
        name: Name of the device.
        ordinals: Its generations.
    """

    def __init__(self, name: str, ordinals: Ordinals) -> None:
        super().__init__(logging.getLogger("callboard.device"))
        self._name = name
        self._ordinals = ordinals

    def recovered(self, seconds: float, standby: str) -> None:
        """The newest context is ready."""
        self.warning("%s: generation %d is ready after %.3f s (%s)", self._name, self._ordinals.last, seconds, standby)

    def lost(self, generation: int, failed: int, error: Exception, pid: int | None) -> None:
        """The context of a host is lost. Logged as text: a record must not keep the error's frames and their arrays."""
        number = f"{self._ordinals.of(generation)}{'' if pid is None else f' (host {pid})'}"
        self.error("%s: generation %s is lost, %d ops failed: %s", self._name, number, failed, str(error))

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields."""
        kwargs["extra"] = {"device": self._name, "generation": self._ordinals.last, **(kwargs.get("extra") or {})}
        return msg, kwargs


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
