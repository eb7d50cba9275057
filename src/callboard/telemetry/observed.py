"""The observed systems of this process, each by itself and all at once.

What belongs to a process (servers, processes, the ring, GPUs) is in the figures of each of its systems, and here once.
"""

import asyncio
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from callboard.actors import ActorSystem
from callboard.events.forking import after_fork
from callboard.telemetry.families import Family, Group
from callboard.telemetry.sampling.blueprints import blueprint_figures
from callboard.telemetry.sampling.processes import process_figures
from callboard.telemetry.sampling.snapshot import RingFigures, Snapshot

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["all_groups", "installed", "joined", "known", "note", "snapshot_of_all"]

R = TypeVar("R")

RECENT = 0.4
"""Seconds that figures of actors may be old in a view, which draws them twice a second."""
PATIENCE = 3.0
"""Seconds that a system on another thread's loop gets; then it is left out, and this is logged."""

log = logging.getLogger("callboard.telemetry")

_installed: "weakref.WeakKeyDictionary[ActorSystem, Telemetry]" = weakref.WeakKeyDictionary()
after_fork(_installed.clear)  # a forked child runs none of its parent's systems


def note(system: ActorSystem, telemetry: "Telemetry") -> None:
    """Have this system's telemetry found."""
    _installed[system] = telemetry


def known(system: ActorSystem) -> "Telemetry | None":
    """The telemetry of a system; None if it has none, or an ended one."""
    found = _installed.get(system)
    return None if found is None or found.closed else found


def installed() -> "list[Telemetry]":
    """The telemetry of all observed systems of this process."""
    return [telemetry for telemetry in _installed.values() if not telemetry.closed]


async def all_groups() -> list[Group]:
    """The metrics of all observed systems. A series that several of them have is that of the first."""

    async def metrics(telemetry: "Telemetry") -> list[Group]:
        await telemetry.refresh()
        return telemetry.collect()

    found = await _each(metrics)
    if len(found) == 1:
        return found[0]
    merged: dict[Family, dict[tuple[str, ...], Any]] = {}
    for family, series in (group for groups in found for group in groups):
        values = merged.setdefault(family, {})
        for labels, value in series:
            values.setdefault(labels, value)
    return [(family, list(values.items())) for family, values in merged.items()]


async def snapshot_of_all() -> Snapshot:
    """The state of this process: of all its observed systems, or of its servers alone if there is none."""

    async def snapshot(telemetry: "Telemetry") -> Snapshot:
        await telemetry.refresh_soon()
        return telemetry.sample(recent=RECENT)

    found = await _each(snapshot)
    if found:
        return joined(found)
    processes, servers = process_figures([]), blueprint_figures()
    return Snapshot(time.time(), "", "", os.getpid(), [], [], servers, processes, RingFigures(0, 0, 0, 0), {}, {})


def joined(snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot of the systems of a process."""
    first, *others = snapshots
    if not others:
        return first
    letters: Counter[str] = Counter()
    for each in snapshots:
        letters.update(each.dead_letters)
    extra: dict[str, Any] = {}
    for each in reversed(snapshots):
        extra |= each.extra
    return Snapshot(
        at=max(each.at for each in snapshots),
        node=first.node,
        system=", ".join(each.system for each in snapshots),
        pid=first.pid,
        actors=_once((actor for each in snapshots for actor in each.actors), lambda actor: actor.path),
        devices=_once((device for each in snapshots for device in each.devices), lambda device: device.name),
        blueprints=first.blueprints,
        processes=_once((process for each in snapshots for process in each.processes), lambda process: process.pid),
        ring=first.ring,
        dead_letters=dict(letters),
        extra=extra,
    )


def _once(figures: Iterable[R], key: Callable[[R], Any]) -> list[R]:
    found: dict[Any, R] = {}
    for each in figures:
        found.setdefault(key(each), each)
    return list(found.values())


async def _each(work: "Callable[[Telemetry], Coroutine[Any, Any, R]]") -> list[R]:
    """Do this for all observed systems, each on its own loop, at the same time.

    Raises:
        Exception: It failed for a system of this loop.
    """
    here = asyncio.get_running_loop()
    waiting = [work(each) if each.loop is here else _elsewhere(each, work) for each in installed()]
    return [found for found in await asyncio.gather(*waiting) if found is not None]


async def _elsewhere(telemetry: "Telemetry", work: "Callable[[Telemetry], Coroutine[Any, Any, R]]") -> R | None:
    """Do it on another thread's loop, which may be busy, or end meanwhile: None then."""
    doing = work(telemetry)
    try:
        there = asyncio.run_coroutine_threadsafe(doing, telemetry.loop)
    except RuntimeError:  # the loop is closed
        doing.close()
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.wrap_future(there)
    except Exception as e:  # of another thread's application
        log.warning("no figures of the system %s: %s: %s", telemetry.label, type(e).__name__, e)
        return None
