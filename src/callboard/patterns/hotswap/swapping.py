"""``Swapper``: the steps of one swap, from loading the new version to unloading the old one."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from callboard.actors.clock import Clock
from callboard.patterns.calling import Executor, UserCall, deliverable
from callboard.patterns.hotswap.canary import Canary, Trial
from callboard.patterns.hotswap.errors import Phase, SwapFailed
from callboard.patterns.hotswap.golden import mismatch
from callboard.patterns.hotswap.model import LoadedModel, made_by, unload
from callboard.patterns.hotswap.results import SwapReport
from callboard.patterns.hotswap.versions import Version, VersionBook, VersionState

__all__ = ["Swapper"]


class Swapper:
    """Makes a version active. One swap at a time: its caller sees to that.

    Attributes:
        canary: The version that gets a share of the requests now, and its trial.
        failures: Swaps that ended in ``SwapFailed``.

    Args:
        book: The versions.
        clock: Tells the time.
        executor, threads: For the models; see :class:`LoadedModel`.
        changed: Called when requests may start that could not before.
    """

    def __init__(
        self, book: VersionBook, clock: Clock, executor: Executor, threads: int, changed: Callable[[], None]
    ) -> None:
        self._book, self._clock = book, clock
        self._executor: Executor = executor
        self._threads = threads
        self._changed = changed
        self._decided: asyncio.Future[None] | None = None
        self._seconds: dict[str, Any] = {}
        self.canary: tuple[Version, Trial] | None = None
        self.failures = 0

    async def swap(
        self, version: Version, *, canary: Canary | None, back: bool, flipped: Callable[[], None]
    ) -> SwapReport:
        """Load, warm up and check a version unless it is loaded, try it, flip, drain and unload the previous one.

        Args:
            version: Of the book.
            canary: How it is tried on requests; None: not at all.
            back: It is the book's ``previous``.
            flipped: Called at the flip, after which the swap cannot fail.

        Raises:
            SwapFailed: Before the flip; the active version is still active.
        """
        self._seconds = {}
        phase: Phase = "load"
        try:
            for phase in phases_of(version):
                with self._timed(phase):
                    await self._step(phase, version)
            if canary is not None:
                phase = "canary"
                with self._timed(phase):
                    await self._try(version, canary)
        except Exception as e:  # of load, the model, check: the user's
            error = await self._withdraw(version)
            self.failures += 1
            raise SwapFailed(
                f"version {version.name!r} was not activated: {phase} failed: {e!r}", version.name, phase, error
            ) from e
        except BaseException:  # cancelled
            await self._withdraw(version)
            raise
        with self._timed("flip"):
            old = self._book.activate(version, back=back)
            self._changed()
        flipped()
        report = SwapReport(version.name, None if old is None else old.name, self._book.generation)
        if old is not None:
            report = await self._retire(old, report)
        return replace(report, **{f"{phase}_seconds": seconds for phase, seconds in self._seconds.items()})

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = self._clock.time()
        try:
            yield
        finally:
            self._seconds[phase] = self._clock.time() - start

    # -- before the flip -----------------------------------------------------------------------------------------------

    async def _step(self, phase: Phase, version: Version) -> None:
        settings = version.settings
        if phase == "load":
            version.state = VersionState.LOADING
            made = await made_by(settings)
            try:
                version.model = LoadedModel(made, self._executor, self._threads)
            except TypeError:
                await unload(made, settings)
                raise
            await version.model.start()
        elif phase == "warm":
            for item in settings.warmup:
                await version.model.host(item)
        else:
            await self._check(version)

    async def _check(self, version: Version) -> None:
        """Golden items, one after another."""
        settings = version.settings
        check = None if settings.check is None else UserCall(settings.check, "auto", 1)
        try:
            for n, (item, expected) in enumerate(settings.golden):
                found = await version.model.host(item)
                wrong = mismatch(found, expected)
                if wrong is None and check is not None and not await check(found, expected):
                    wrong = "check refused the response"
                if wrong is not None:
                    raise ValueError(f"golden item {n}: {wrong}")
        finally:
            if check is not None:
                check.close()

    async def _try(self, version: Version, canary: Canary) -> None:
        """Let it have its share of the requests, until enough of them have ended."""
        trial = Trial(canary)
        version.state = VersionState.CANARY
        self.canary = version, trial
        self._decided = asyncio.get_running_loop().create_future()
        try:
            await self._decided
        finally:
            self.canary = None
            self._changed()  # what was drawn for it and has not started goes to the active one
        if not trial.passed:
            raise RuntimeError(f"{trial.failed} of {trial.ended} requests failed")

    def ended(self, version: Version, *, failed: bool) -> None:
        """A call of a version has ended."""
        if self.canary is not None and self.canary[0] is version:
            self.canary[1].add(failed=failed)
            if self.canary[1].passed is not None and self._decided is not None and not self._decided.done():
                self._decided.set_result(None)

    async def _withdraw(self, version: Version) -> Exception | None:
        """Unload a version that is not to become active; gives what that raised."""
        version.state = VersionState.DRAINING
        await self._idle(version)
        return await self.unload(version, VersionState.FAILED)

    # -- after the flip ------------------------------------------------------------------------------------------------

    async def _retire(self, old: Version, report: SwapReport) -> SwapReport:
        with self._timed("drain"):
            await self._idle(old)
        gone, errors = self._book.drained(old), []
        with self._timed("unload"):
            for version in gone:
                error = await self.unload(version, VersionState.UNLOADED)
                if error is not None:
                    errors.append((version.name, error))
        return replace(report, unloaded=tuple(each.name for each in gone), unload_errors=tuple(errors))

    async def _idle(self, version: Version) -> None:
        """Wait until no request runs on it."""
        if version.running:
            version.idle = asyncio.get_running_loop().create_future()
            try:
                await version.idle
            finally:
                version.idle = None

    async def unload(self, version: Version, state: VersionState) -> Exception | None:
        """Unload a version, if it is loaded; gives what that raised."""
        model = version.model
        try:
            if model is not None:
                await model.unload(version.settings)
        except Exception as e:  # the user's unload: the model is given up all the same
            return deliverable(e)
        finally:
            self._book.unloaded(version, state)
        return None


def phases_of(version: Version) -> tuple[Phase, ...]:
    """The steps that a version needs before requests can go to it."""
    return ("load", "warm", "check") if version.model is None else ()
