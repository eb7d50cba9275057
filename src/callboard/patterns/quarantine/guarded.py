"""``GuardedCalls``: calls for single requests, each of them run by a quarantine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import ContextLost, Withdrawn
from callboard.patterns.quarantine.guard import Quarantine, is_loss
from callboard.patterns.quarantine.keyring import Keyring
from callboard.patterns.requests.entries import Entry, State

__all__ = ["GuardedCalls"]

R = TypeVar("R")


class GuardedCalls:
    """Runs the call of a request in its place, and again after a loss, as a quarantine says.

    Args:
        name: Name of the server, for keys.
        clock: Tells the time; for tests.
    """

    def __init__(self, name: str, clock: Clock | None) -> None:
        self._quarantine = Quarantine[None](None, clock=clock)
        self._keyring = Keyring(None, name)

    @property
    def quarantine(self) -> Quarantine[None]:
        """Decides which requests run together and which are refused."""
        return self._quarantine

    @property
    def repeated(self) -> int:
        """Runs after the first, of all requests."""
        return self._quarantine.stats().retries

    def read_key(self, entry: Entry) -> None:
        """See :meth:`Keyring.read`."""
        self._keyring.read(entry)

    def pause(self, entry: Entry) -> bool:
        """The call of a request is to wait in its middle; False: it must go on, as others wait for its end."""
        if entry.clear:
            self._quarantine.pause()
        return entry.clear

    def resume(self, entry: Entry) -> None:
        """It goes on."""
        if entry.clear:
            self._quarantine.resume()

    async def run(self, entry: Entry, attempt: Callable[[], Awaitable[R]]) -> R:
        """The value of a request.

        Args:
            entry: The request. It is not run again once parts of its answer have been delivered.
            attempt: Called for each run.

        Raises:
            Quarantined, DeadlineExceeded, QueueFull: See :meth:`Quarantine.run`.
            Exception: Raised by ``attempt``.
        """
        quarantine = self._quarantine
        who = self._keyring.identity(entry) if quarantine.has_records else None
        if not quarantine.begin(who):
            return await self._as_suspect(entry, attempt, again=False)
        self._keyring.mark(entry)
        entry.clear = True
        try:
            value = await attempt()
        except ContextLost as e:
            if entry.state is State.ENDED:  # its caller has left
                quarantine.end("failed")
                raise
            again = is_loss(e) and not entry.has_parts
            quarantine.lost(self._keyring.identity(entry), e, again=again)
            if not again:
                raise
        except asyncio.CancelledError:
            quarantine.end("cancelled")
            raise
        except BaseException:  # of the user's function, and Ctrl-C
            quarantine.end("failed")
            raise
        else:
            quarantine.end("completed")
            return value
        finally:
            entry.clear = False
        return await self._as_suspect(entry, attempt, again=True)

    async def _as_suspect(self, entry: Entry, attempt: Callable[[], Awaitable[R]], *, again: bool) -> R:
        async def run(_: None) -> R:
            if entry.state is State.ENDED:
                raise Withdrawn("the caller has left, or its deadline has passed")
            self._keyring.mark(entry)
            try:
                return await attempt()
            except ContextLost as e:
                if entry.has_parts:
                    raise _Told(e) from e
                raise

        try:
            return await self._quarantine.run_as(self._keyring.identity(entry), run, again=again, outlives=False)
        except _Told as e:
            raise e.error from None


class _Told(Exception):
    """A loss after parts of the answer were delivered, which a further run would repeat."""

    def __init__(self, error: ContextLost) -> None:
        self.error = error
