"""``ModelTrial``: a version of a served model gets a share of the requests, or a copy of them, and is judged."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from callboard.actors.clock import Clock, LoopClock
from callboard.core.ref import GpuRef
from callboard.patterns.fairshare.settings import UnknownTenant
from callboard.patterns.hotswap.canary import Canary, Trial, is_failure
from callboard.patterns.hotswap.errors import SwapFailed
from callboard.patterns.requests.workers import within
from callboard.serve.calls import CallServer
from callboard.serve.errors import BadRequest

if TYPE_CHECKING:
    from callboard.serve.models import Model

__all__ = ["ModelTrial", "item_for"]

OF_THE_CLIENT = (BadRequest, UnknownTenant)
"""Errors of requests that no version could answer."""
SHADOWS = 16
"""Copies of requests that run at once; others that are drawn meanwhile are not copied."""

_log = logging.getLogger("callboard.serve")


class ModelTrial:
    """The trial of a version, until it has passed or failed.

    Args:
        old: The version that gets the requests.
        new: The version on trial.
        canary: Settings of the trial.
        clock: Tells the time; for tests.

    Raises:
        ValueError: The canary has a judge or a shadow, and the model streams, or it has a shadow, and the model has
            sequences, whose state a copy of a request would change, or gets inputs of ``/v1/embeddings`` in another
            form in each version.
    """

    def __init__(self, old: "Model", new: "Model", canary: Canary, clock: Clock | None = None) -> None:
        if (canary.shadow or canary.judge is not None) and old.streams:
            raise ValueError(f"model {old.name!r} streams: its canary can have neither judge nor shadow")
        if canary.shadow and old.has_sequences:
            raise ValueError(f"model {old.name!r} has sequences: its canary can have no shadow")
        if canary.shadow and hasattr(old, "embed") and _is_function(old) != _is_function(new):
            which = "one version gets lists of inputs, and one gets single inputs"
            raise ValueError(f"model {old.name!r}: {which}: its canary can have no shadow")
        self.new = new
        self._old = old
        self._canary = canary
        self._trial = Trial(canary)
        self._clock = clock or LoopClock()
        self._decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shadows: set[asyncio.Task[None]] = set()

    def draws(self) -> bool:
        """True if the next request is for the new version."""
        return not (self._canary.shadow or self._decided.done()) and self._trial.draws(None)

    async def run(self) -> None:
        """Wait until enough requests have ended, for ``timeout`` of the canary at most.

        Raises:
            SwapFailed: The version has failed, or is undecided.
            Exception: Given to :meth:`fail`.
        """
        old, new = self._old, self.new
        old.on_end = new.on_end = self._ended
        if self._canary.shadow:
            old.on_value = self._copied
        elif self._canary.judge is not None:
            new.on_value = self._judged
        try:
            if await within(self._decided, self._canary.timeout, self._clock):
                self._decided.result()
        finally:
            old.on_end = new.on_end = old.on_value = new.on_value = None
            for task in self._shadows:
                task.cancel()
        if self._trial.passed is None:
            _log.warning("model %r: version %r is withdrawn: %s", new.name, new.version, self._trial.why)
        if not self._trial.passed:
            why = self._trial.why if self._trial.error is None else f"{self._trial.error!r} in a hook"
            text = f"version {self.new.version!r} of model {self.new.name!r} was not activated: canary failed: {why}"
            raise SwapFailed(text, self.new.version, "canary") from self._trial.error

    def fail(self, error: Exception) -> None:
        """End it with this error, unless it has ended."""
        if not self._decided.done():
            self._decided.set_exception(error)

    def _ended(self, of: "Model", error: BaseException | None, seconds: float, refused: bool) -> None:
        """A request has ended."""
        if error is not None and not _counts(error):
            return
        if of is self._old and error is None:
            self._trial.add_baseline(seconds)
        elif of is self.new:
            self._add(failed=error is not None or refused, seconds=seconds)

    def _add(self, *, failed: bool, seconds: float = 0.0, error: Exception | None = None) -> None:
        self._trial.add(failed=failed, seconds=seconds, error=error)
        if self._trial.passed is not None and not self._decided.done():
            self._decided.set_result(None)

    async def _judged(self, value: Any, again: "Callable[[Model], Awaitable[Any]]") -> bool:
        """False if the judge refuses the new version's value."""
        try:
            return self._canary.good(await _on_host(value))
        except Exception as e:  # of the user's judge: the client gets the value all the same
            self._add(failed=True, error=e)
            return True

    async def _copied(self, value: Any, again: "Callable[[Model], Awaitable[Any]]") -> bool:
        """Run the request that the old version has answered on the new one as well, if it is drawn."""
        if len(self._shadows) < SHADOWS and self._trial.draws(None):
            task = asyncio.create_task(self._compare(value, again))
            self._shadows.add(task)
            task.add_done_callback(self._shadows.discard)
        return True

    async def _compare(self, expected: Any, again: "Callable[[Model], Awaitable[Any]]") -> None:
        started = time.perf_counter()
        failed, judged = True, None
        try:
            found = await again(self.new)
        except Exception as e:  # of the model: the version has failed with this request, if it has reached it
            if not _counts(e):
                return
            _log.debug("a copy of a request has failed", exc_info=True)
        else:
            try:
                found = await _on_host(found)
                failed = not (self._canary.good(found) and self._canary.agrees(await _on_host(expected), found))
            except Exception as e:  # of the user's functions
                judged = e
        self._add(failed=failed, seconds=time.perf_counter() - started, error=judged)


def _counts(error: BaseException) -> bool:
    """True if the error of a request counts against the version that it was for."""
    return is_failure(error) and not isinstance(error, OF_THE_CLIENT)


def item_for(old: "Model", new: "Model", item: Any) -> Any:
    """The item of one version's server as another one's takes it: functions get the tuple of their arguments."""
    if _is_function(old) == _is_function(new) or len(getattr(old, "inputs", "1")) > 1:
        return item
    return item[0] if _is_function(old) else (item,)


def _is_function(model: "Model") -> bool:
    return isinstance(model.chain.last, CallServer)


async def _on_host(value: Any) -> Any:
    """A value whose arrays are read if they are on a device."""
    if isinstance(value, dict):
        return {name: await _on_host(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [await _on_host(each) for each in value]
    return await value.get() if isinstance(value, GpuRef) else value
