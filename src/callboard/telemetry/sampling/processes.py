"""The application's process and its context hosts."""

import os

from callboard.events.usage import usage
from callboard.telemetry.sampling.snapshot import ProcessFigures

__all__ = ["process_figures"]


def process_figures(hosts: list[tuple[str, int, tuple[int, float, int] | None]]) -> list[ProcessFigures]:
    """Figures of this process and of hosts.

    Args:
        hosts: Device and process of each, and what a host of another machine says of itself; None: it is read here.
    """
    mine = os.getpid()
    found = [(mine, "application", "", usage())]
    for device, pid, known in hosts:
        if pid != mine:
            found.append((pid, "host", device, known or usage(pid)))
    return [ProcessFigures(pid, role, device, *used) for pid, role, device, used in found if used is not None]
