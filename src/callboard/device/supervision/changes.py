"""``ChangedSettings``: what was set after a device was opened; each further context is told of it."""

from typing import Any

import msgspec

from callboard.device.protocol.messages import Ask
from callboard.device.supervision.hosts.base import Host
from callboard.events.ring import EVENTS

__all__ = ["ChangedSettings"]


class ChangedSettings:
    """Requests to hosts whose settings are those of the configuration.

    Args:
        traced: The configuration has every op recorded; otherwise as many are as telemetry wants.
    """

    def __init__(self, traced: bool) -> None:
        self._values: dict[str, Any] = {"trace": EVENTS.every} if EVENTS.every and not traced else {}

    def set(self, what: str, value: Any) -> None:
        """Have later contexts asked for ``what`` with this argument."""
        self._values[what] = value

    def has(self, what: str) -> bool:
        """Whether later contexts are asked for ``what``."""
        return what in self._values

    def forget(self, what: str) -> None:
        """Have later contexts not asked for ``what``."""
        self._values.pop(what, None)

    def tell(self, host: Host) -> None:
        """Ask a host whose context has become the device's."""
        for what, value in self._values.items():
            host.post(Ask(0, what, msgspec.msgpack.encode(value)))
