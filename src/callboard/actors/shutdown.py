"""Coordinated shutdown: phases that depend on each other, tasks that run side by side inside a phase.

Default phases, in order: ``stop-accepting``, ``drain``, ``cluster-leave``, ``actors``, ``devices``.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

from callboard.actors.clock import Clock
from callboard.actors.errors import ShutdownError, returned

__all__ = ["DEFAULT_PHASES", "CoordinatedShutdown", "Phase", "order_of"]

_log = logging.getLogger("callboard.actors")

ShutdownTask = Callable[[], Awaitable[object] | None]


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase.

    Args:
        after: phases that precede it.
        timeout: seconds its tasks get, side by side.
        recover: whether shutdown continues when one of its tasks fails or runs out of time.
        enabled: False skips its tasks; the order of the others is unchanged.
    """

    after: tuple[str, ...] = ()
    timeout: float = 5.0
    recover: bool = True
    enabled: bool = True


DEFAULT_PHASES: Final[Mapping[str, Phase]] = {
    "stop-accepting": Phase(),
    "drain": Phase(after=("stop-accepting",)),
    "cluster-leave": Phase(after=("drain",)),
    "actors": Phase(after=("cluster-leave",), timeout=20.0),
    "devices": Phase(after=("actors",)),
}


def order_of(phases: Mapping[str, Phase]) -> list[str]:
    """The phases in an order that respects ``after``; phases that are only named there are included, without tasks.

    Raises:
        ValueError: they form a cycle.
    """
    try:
        return list(TopologicalSorter({name: phase.after for name, phase in phases.items()}).static_order())
    except CycleError as error:
        raise ValueError(f"shutdown phases form a cycle: {' -> '.join(error.args[1])}") from None


@dataclass(frozen=True, slots=True)
class _Task:
    name: str
    call: ShutdownTask
    timeout: float | None


class CoordinatedShutdown:
    """Runs tasks phase by phase, once.

    Args:
        clock: measures the timeouts.
        phases: by name.

    Raises:
        ValueError: the phases form a cycle.
    """

    def __init__(self, clock: Clock, phases: Mapping[str, Phase] = DEFAULT_PHASES) -> None:
        self.phases = dict(phases)
        self.reason: str | None = None
        self._order = order_of(self.phases)
        self._clock = clock
        self._tasks: dict[str, list[_Task]] = {name: [] for name in self._order}
        self._run: asyncio.Task[None] | None = None

    @property
    def order(self) -> list[str]:
        """Names of the phases as they are run."""
        return list(self._order)

    def add_task(
        self, phase: str, name: str, task: ShutdownTask, *, timeout: float | None = None
    ) -> Callable[[], None]:
        """Have ``task()`` called, and awaited if it is ``async``, in ``phase``; also while an earlier phase runs.

        Returns:
            a function that removes the task.

        Raises:
            ValueError: there is no such phase.
        """
        if phase not in self._tasks:
            raise ValueError(f"no shutdown phase {phase!r}; there are {', '.join(self._order)}")
        entry = _Task(name, task, timeout)
        self._tasks[phase].append(entry)

        def remove() -> None:
            if entry in self._tasks[phase]:
                self._tasks[phase].remove(entry)

        return remove

    async def run(self, *, from_phase: str | None = None, reason: str | None = None) -> None:
        """Run all phases, or those from ``from_phase`` on. Later calls wait for the first one.

        Raises:
            ValueError: there is no such phase.
            ShutdownError: a phase without ``recover`` failed; the phases after it did not run.
        """
        if from_phase is not None and from_phase not in self._tasks:
            raise ValueError(f"no shutdown phase {from_phase!r}; there are {', '.join(self._order)}")
        if self._run is None:
            self.reason = reason
            start = 0 if from_phase is None else self._order.index(from_phase)
            self._run = asyncio.get_running_loop().create_task(self._run_phases(self._order[start:]), name="shutdown")
        await asyncio.shield(self._run)

    async def _run_phases(self, names: list[str]) -> None:
        for name in names:
            phase = self.phases.get(name, Phase())
            tasks = self._tasks[name]
            if not phase.enabled:
                if tasks:
                    _log.info("shutdown phase %s is disabled; %d tasks are skipped", name, len(tasks))
                continue
            if not tasks:
                continue
            results = await asyncio.gather(
                *(self._run_task(name, task, phase) for task in tasks), return_exceptions=True
            )
            failures = [result for result in results if isinstance(result, BaseException)]
            if failures and not phase.recover:
                raise ShutdownError(f"shutdown phase {name} failed: {failures[0]}") from failures[0]

    async def _run_task(self, phase_name: str, task: _Task, phase: Phase) -> None:
        timeout = phase.timeout if task.timeout is None else task.timeout
        try:
            work = task.call()
            if work is None:
                return
            if not inspect.isawaitable(work):
                raise returned(f"shutdown task {task.name}", work, "None, or something that can be awaited")
            running = asyncio.ensure_future(work)
            timer = self._clock.call_later(timeout, running.cancel)
            try:
                await running
            except asyncio.CancelledError:
                this = asyncio.current_task()
                if this is not None and this.cancelling():  # by the end of the loop, say: no task has failed
                    raise
                raise TimeoutError(f"no end within {timeout:g} s, or cancelled") from None
            finally:
                timer.cancel()
        except Exception as error:  # of any class: reported here, handled by the caller
            _log.warning("shutdown task %s in phase %s failed: %r", task.name, phase_name, error, exc_info=error)
            raise
