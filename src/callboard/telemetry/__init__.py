"""The upper half of telemetry: sampling, exporters, views. ``cb.observe(system)`` installs it.

The lower half, a ring of events with its hooks, is :mod:`callboard.events`.
"""

from callboard.telemetry.families import Family, Group, Source
from callboard.telemetry.install import install, installed, observe
from callboard.telemetry.sampling.snapshot import Snapshot
from callboard.telemetry.table import TABLE, family
from callboard.telemetry.telemetry import Telemetry

__all__ = ["TABLE", "Family", "Group", "Snapshot", "Source", "Telemetry", "family", "install", "installed", "observe"]
