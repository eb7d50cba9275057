"""``Swapper``: the steps of one swap, from loading the new version to unloading the old one."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from callboard.actors.clock import Clock
from callboard.actors.errors import printable
from callboard.patterns.contract.hooks import truth
from callboard.patterns.hotswap.canary import Canary, Trial
from callboard.patterns.hotswap.errors import Phase, SwapFailed
from callboard.patterns.hotswap.golden import mismatch
from callboard.patterns.hotswap.memory import DeviceMemory
from callboard.patterns.hotswap.model import LoadedModel, made_by, unload
from callboard.patterns.hotswap.results import SwapReport
from callboard.patterns.hotswap.versions import Version, VersionBook, VersionState
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.runs import RunLimit
from callboard.patterns.requests.workers import STOP_TIMEOUT, within

__all__ = ["SwapMode", "Swapper"]

SwapMode = Literal["auto", "beside", "in_place"]

_log = logging.getLogger(__name__)


class Swapper:
    """Makes a version active. One swap at a time, which the caller must ensure.

    Attributes:
        canary: The version that gets a share of the requests now, and its trial.
        failures: Swaps that ended in ``SwapFailed``.
        holds: No request is to start: the weights of the active model are being replaced.

    Args:
        book: The versions.
        clock: Tells the time.
        executor, threads: Executor and thread count for the models; see :class:`LoadedModel`.
        memory: Memory of the device that versions are loaded on; None: every version is assumed to fit.
        changed: Called when requests may start that could not before.
        give_up: Called with a version that is withdrawn: calls that nobody waits for end; with True, the others as
            well, and their requests. Returns False if it knows no request that waits for the version.
    """

    def __init__(
        self,
        book: VersionBook,
        clock: Clock,
        executor: Executor,
        threads: int,
        memory: DeviceMemory | None,
        changed: Callable[[], None],
        give_up: Callable[[Version, bool], bool],
    ) -> None:
        self._book, self._clock = book, clock
        self._executor: Executor = executor
        self._threads = threads
        self._memory = memory
        self._changed = changed
        self._give_up = give_up
        self._decided: asyncio.Future[None] | None = None
        self._seconds: dict[str, Any] = {}
        self.canary: tuple[Version, Trial] | None = None
        self.failures = 0
        self.holds = False
        self.limit: RunLimit | None = None

    async def swap(
        self, version: Version, *, canary: Canary | None, back: bool, mode: SwapMode, flipped: Callable[[], None]
    ) -> SwapReport:
        """Load, warm up and check a version unless it is loaded, try it, flip, drain and unload the previous one.

        Or put its weights into the loaded model, between requests.

        Args:
            version: A version of the book.
            canary: Trial of the version on live requests; None: no trial.
            back: It is the book's ``previous``.
            mode: Load the version beside the active one, update the loaded model in place, or choose between them
                (``"auto"``).
            flipped: Called at the flip, after which the swap cannot fail.

        Raises:
            SwapFailed: Before the flip; the active version is still active.
        """
        self._seconds = {}
        phase: Phase = "plan"
        try:
            in_place = await self._planned(version, mode, canary)
        except Exception as e:  # of the user's `free`, or the plan
            self.failures += 1
            self._book.unloaded(version, VersionState.FAILED)
            raise SwapFailed(f"version {version.name!r} was not activated: {printable(e)}", version.name, phase) from e
        if in_place:
            return await self._replace_weights(version, back, flipped)
        phase = "load"
        try:
            for phase in phases_of(version):
                with self._timed(phase):
                    await self._step(phase, version)
            if canary is not None:
                phase = "canary"
                with self._timed(phase):
                    await self._try(version, canary)
        except Exception as e:  # of load, the model, check: the user's
            error = await self._withdraw(version, canary)
            raise self._failed(version, phase, e, error) from e
        except BaseException:  # cancelled
            await self._withdraw(version, canary)
            raise
        with self._timed("flip"):
            old = self._book.activate(version, back=back)
            self._changed()
        flipped()
        report = SwapReport(version.name, None if old is None else old.name, self._book.generation)
        if old is not None:
            report = await self._retire(old, report)
        return replace(report, **{f"{phase}_seconds": seconds for phase, seconds in self._seconds.items()})

    def _failed(self, version: Version, phase: Phase, why: Exception, error: Exception | None) -> SwapFailed:
        """The error of a swap that failed in this phase, and perhaps another error after it."""
        self.failures += 1
        text = f"version {version.name!r} was not activated: {phase} failed: {printable(why, repr)}"
        return SwapFailed(text, version.name, phase, error)

    async def _planned(self, version: Version, mode: SwapMode, canary: Canary | None) -> bool:
        """True if the swap is to be in place.

        Raises:
            Exception: The version can neither be updated in place nor loaded next to the active version.
        """
        old = self._book.active
        if version.model is not None:
            return False
        why = None
        if old is None:
            why = "there is no active version that could give its place"
        elif version.settings.update is None or old.settings.update is None:
            lacking = version if version.settings.update is None else old
            why = f"version {lacking.name!r} has no `update`, which puts its weights into a loaded model"
        elif canary is not None:
            why = "a canary needs both versions at the same time"
        if mode == "in_place":
            if why is not None:
                raise ValueError(why)
            return True
        if self._memory is None:
            return False
        free = await self._memory.measure()
        lacks = self._memory.lacks(version.settings.memory, free)
        if lacks and mode == "auto" and why is None:
            return True
        if lacks:
            text = f"it needs {version.settings.memory} bytes, and {free} are free: {lacks} are missing"
            raise MemoryError(f"{text}; {why or 'mode is beside'}")
        return False

    async def _replace_weights(self, version: Version, back: bool, flipped: Callable[[], None]) -> SwapReport:
        old = self._book.active
        assert old is not None
        phase: Phase = "update"
        self.holds = True
        version.state = VersionState.LOADING
        try:
            with self._timed("drain"):
                await self._idle(old)
            version.model = old.model
            try:
                with self._timed(phase):
                    await old.model.update(version.settings)
                phase = "check"
                with self._timed(phase):
                    await self._check(version)
            except BaseException as e:  # a cancellation, too
                error = await self._put_back(version, old)
                if not isinstance(e, Exception):
                    raise
                raise self._failed(version, phase, e, error) from e
            self._book.activate(version, back=back)
            self._book.unloaded(old, VersionState.UNLOADED)
            flipped()
        finally:
            if version.state is VersionState.LOADING:  # it was cancelled before anything was touched
                self._book.unloaded(version, VersionState.FAILED)
            self.holds = False
            self._changed()
        seconds = {f"{phase}_seconds": seconds for phase, seconds in self._seconds.items()}
        return SwapReport(version.name, old.name, self._book.generation, in_place=True, **seconds)

    async def _put_back(self, version: Version, old: Version) -> Exception | None:
        """Restore the active version's weights; returns the error raised, after which there is no active version."""
        model = old.model
        self._book.unloaded(version, VersionState.FAILED)
        try:
            await model.update(old.settings)
        except Exception as e:  # raised by the user's `update`: the model's weights are in an unknown state
            self._book.active = None
            _log.error(
                "the weights of version %s could not be put back: %s; requests wait for a swap",
                old.name,
                printable(e, repr),
            )
            return await self.unload(old, VersionState.FAILED) or deliverable(e)
        return None

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
                version.model = LoadedModel(made, self._executor, self._threads, self.limit)
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
                if wrong is None and check is not None and not truth("check", await check(found, expected)):
                    wrong = "check refused the response"
                if wrong is not None:
                    raise ValueError(f"golden item {n}: {wrong}")
        finally:
            if check is not None:
                check.close()

    async def _try(self, version: Version, canary: Canary) -> None:
        """Let it have its share of the requests, until enough of them have ended, or its time is over."""
        active = None if self._book.active is None else self._book.active.run_time.snapshot()
        trial = Trial(canary, active.mean if active is not None and active.count else None)
        version.state = VersionState.CANARY
        self.canary = version, trial
        self._decided = asyncio.get_running_loop().create_future()
        try:
            await within(self._decided, canary.timeout, self._clock)
        finally:
            self.canary = None
            self._changed()  # requests that were drawn for it and have not started go to the active one
        if trial.passed is None:
            _log.warning("version %s is withdrawn: %s", version.name, trial.why)
        if not trial.passed:
            if trial.error is not None:
                raise trial.error
            raise RuntimeError(trial.why)

    def ended(self, version: Version, *, failed: bool, seconds: float, error: Exception | None = None) -> None:
        """A call of a version has ended; ``error`` is that of a hook that was to judge it."""
        if self.canary is not None and version is self._book.active and not failed:
            self.canary[1].add_baseline(seconds)
        if self.canary is not None and self.canary[0] is version:
            self.canary[1].add(failed=failed, seconds=seconds, error=error)
            if self.canary[1].passed is not None and self._decided is not None and not self._decided.done():
                self._decided.set_result(None)

    async def _withdraw(self, version: Version, canary: Canary | None) -> Exception | None:
        """Unload a version that is not to become active; returns the error raised.

        Its requests have as long to end as the trial had. A call on a thread that does not end keeps the model loaded.
        """
        version.state = VersionState.DRAINING
        awaited = self._give_up(version, False)
        patience = canary.timeout if canary is not None and awaited else STOP_TIMEOUT
        if not await self._idle(version, patience):
            self._give_up(version, True)
            if not await self._idle(version, STOP_TIMEOUT):
                _log.warning("version %s is withdrawn, but its calls still run, and it stays loaded", version.name)
                version.model.close()
                self._book.unloaded(version, VersionState.FAILED)
                return TimeoutError(f"calls of version {version.name!r} still run, and it stays loaded")
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

    async def _idle(self, version: Version, timeout: float | None = None) -> bool:
        """Wait until no request runs on it, at most so many seconds; whether none does."""
        if version.running:
            version.idle = asyncio.get_running_loop().create_future()
            try:
                return await within(version.idle, timeout, self._clock)
            finally:
                version.idle = None
        return True

    async def unload(self, version: Version, state: VersionState) -> Exception | None:
        """Unload a version, if it is loaded; returns the error raised, or an error if its memory was not released."""
        model, memory, needed = version.model, self._memory, version.settings.memory
        proves = memory if model is not None and needed else None
        try:
            before = 0 if proves is None else await proves.measure()
            if model is not None:
                await model.unload(version.settings)
            if proves is not None:
                return proves.kept(version.name, needed, before, await proves.measure())
        except Exception as e:  # the user's unload: the model is dropped all the same
            return deliverable(e)
        finally:
            self._book.unloaded(version, state)
        return None


def phases_of(version: Version) -> tuple[Phase, ...]:
    """The steps that a version needs before it can receive requests."""
    return ("load", "warm", "check") if version.model is None else ()
