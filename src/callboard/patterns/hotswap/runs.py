"""``VersionRuns``: requests on versions of a model, and the requests that a canary in shadow gets as well."""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.patterns.contract.atcall import as_given
from callboard.patterns.contract.taking import taken
from callboard.patterns.hotswap.canary import is_failure
from callboard.patterns.hotswap.model import LoadedModel
from callboard.patterns.hotswap.results import HotSwapReply
from callboard.patterns.hotswap.shadow import compare
from callboard.patterns.hotswap.versions import Version
from callboard.patterns.requests.calling import deliverable
from callboard.patterns.requests.entries import Entry, RequestFuture, State
from callboard.patterns.requests.errors import DeadlineExceeded, QueueFull
from callboard.patterns.requests.passage import PASSAGE

if TYPE_CHECKING:
    from callboard.patterns.hotswap.server import ModelHotSwapServer

__all__ = ["VersionRuns"]


class VersionRuns:
    """Runs requests that have left the queue, each on one version.

    Args:
        server: Ends requests.
        key_of: The user's key of an item, for trials; None: there is none.
        max_concurrent: Requests that run at once on one version; None: 1, and no bound where it is a server.
    """

    def __init__(
        self,
        server: "ModelHotSwapServer[Any, Any]",
        key_of: Callable[[Any], Hashable] | None,
        max_concurrent: int | None,
    ) -> None:
        self._server = server
        self._key_of = key_of
        self._max_concurrent = max_concurrent
        self._calls: dict[asyncio.Task[None], tuple[Version, Entry | None]] = {}  # None: of a shadow
        self._reached: dict[int, Version] = {}  # the version that a request was passed to, until its end was counted
        self._passed_on: dict[int, asyncio.Future[Any]] = {}  # requests in the queue of a version that is a server

    def has_room(self, version: Version) -> bool:
        """True if one more request may run on it."""
        unbounded = self._max_concurrent is None and version.model.server is not None
        return unbounded or version.running < (self._max_concurrent or 1)

    def start(self, entry: Entry, version: Version) -> None:
        """A request runs on this version, and on no other."""
        self._begin(self._run(entry, version), "request", version, entry)

    def _begin(self, work: Any, what: str, version: Version, entry: Entry | None) -> None:
        version.running += 1
        task = self._server._spawn(work, what)
        self._calls[task] = version, entry
        task.add_done_callback(self._ended)

    async def _run(self, entry: Entry, version: Version) -> None:
        server, item = self._server, entry.item
        PASSAGE.set(entry.passage)
        server._cause([entry])
        failed, judged = False, None
        try:
            if entry.state is State.ENDED:
                return
            response = await self._respond(entry, item, version)
            now = server._clock.time()
            version.completed += 1
            version.run_time.add(now - entry.started)
            try:
                failed = not self._good(version, response)
            except Exception as e:  # of the user's judge: the response is not its business
                failed, judged = True, deliverable(e)
            self._shadow(item, version, response, None if entry.deadline is None else entry.deadline - entry.arrived)
            server._succeed(entry, HotSwapReply(response, version.name), now)
        except asyncio.CancelledError:  # with its request, by stop(), or with its loop
            server._fail(entry, server._stopped(), "stopped")
            return
        except Exception as e:  # of the user's model: its request ends in that
            failed = True
            version.failed += 1
            if not is_failure(e):
                self._reached.pop(entry.number, None)
            ends = {DeadlineExceeded: "expired", QueueFull: "dropped"}
            server._fail(
                entry, deliverable(e), next((end for kind, end in ends.items() if isinstance(e, kind)), "failed")
            )
        except BaseException:  # Ctrl-C
            server._fail(entry, server._stopped(), "stopped")
            raise
        self._count_run(entry, failed=failed, error=judged)

    def _good(self, version: Version, response: Any) -> bool:
        """True if a response does not count against a canary."""
        trial = self._server._swapper.canary
        return trial is None or trial[0] is not version or trial[1].canary.good(response)

    def _shadow(self, item: Any, version: Version, response: Any, timeout: float | None) -> None:
        """Run a request that the active version has answered on a canary as well, if it is drawn and there is room.

        Its call there has as many seconds as the request had.
        """
        server = self._server
        trial = server._swapper.canary
        if trial is None or not trial[1].canary.shadow or version is not server._book.active:
            return
        try:
            drawn = trial[1].draws(None if self._key_of is None else self._key_of(item))
        except Exception:  # of the user's key, which has named the request before
            return
        if drawn and self.has_room(trial[0]) and server._stopping is None:
            ended = server._swapper.ended
            expected = taken(response)  # its caller may write the response
            work = compare(trial[0], trial[1].canary, item, expected, timeout, server._clock, ended)
            self._begin(work, "shadow", trial[0], None)

    def give_up(self, version: Version, everything: bool) -> bool:
        """End the calls of a version that nobody waits for, or all; False if no request waits for one."""
        server, awaited = self._server, False
        for task, (of, entry) in list(self._calls.items()):
            if of is not version:
                continue
            if entry is not None and entry.state is not State.ENDED:
                awaited = True
                if not everything:
                    continue
                text = f"{server.name}: version {version.name!r} was withdrawn, and the request still ran on it"
                server._fail(entry, DeadlineExceeded(text, "run", server._clock.time() - entry.arrived), "expired")
            if not version.model.on_thread:
                task.cancel()
        return awaited

    async def _respond(self, entry: Entry, item: Any, version: Version) -> Any:
        server = version.model.server
        if server is None:
            return await self._server._guarded_run(entry, partial(self._call, entry, item, version))
        self._reached[entry.number] = version
        future = as_given(server.submit_nowait)(item, deadline=entry.deadline, priority=entry.priority, cost=entry.cost)
        self._passed_on[entry.number] = future
        try:
            return await future
        finally:
            self._passed_on.pop(entry.number, None)

    async def _call(self, entry: Entry, item: Any, version: Version) -> Any:
        self._reached[entry.number] = version
        return await version.model(item, entry)

    def _ended(self, task: asyncio.Task[None]) -> None:
        version, entry = self._calls.pop(task)
        if entry is not None:
            self._reached.pop(entry.number, None)
        version.running -= 1
        if not version.running and version.idle is not None and not version.idle.done():
            version.idle.set_result(None)
        self._server._pump()

    # -- ends ----------------------------------------------------------------------------------------------------------

    def leave(self, entry: Entry, reason: str) -> LoadedModel | None:
        """A request ends; returns the model whose call may be of no use any more."""
        passed_on = self._passed_on.pop(entry.number, None)
        if passed_on is not None:
            passed_on.cancel()
        version = self._reached.get(entry.number)
        if reason == "expired":  # the call may never return
            self._count_run(entry, failed=True)
        elif reason == "cancelled":
            self._reached.pop(entry.number, None)
        return None if version is None or reason not in ("cancelled", "expired") else version.model

    def has_run(self, entry: Entry) -> bool:
        """True if a request has left the queues: that of the server, and that of a version that is a server.

        One that has not is not counted as a run of its version.
        """
        behind = self._passed_on.get(entry.number)
        if not isinstance(behind, RequestFuture):
            return entry.number in self._reached
        if not behind.done():
            found = behind.entry.state is State.RUNNING or behind.entry.repeated
        else:
            error = None if behind.cancelled() else behind.exception()
            found = error is None or is_failure(error)
        if not found:
            self._reached.pop(entry.number, None)
        return found

    def _count_run(self, entry: Entry, *, failed: bool, error: Exception | None = None) -> None:
        """Count the end of a request that has reached a version; once."""
        version, server = self._reached.pop(entry.number, None), self._server
        if version is not None:
            server._swapper.ended(version, failed=failed, seconds=server._clock.time() - entry.started, error=error)

    def cancel(self) -> set[asyncio.Task[None]]:
        """Cancel the calls that can be interrupted; returns all of them, but for one that calls this."""
        calls = self._calls.keys() - {asyncio.current_task()}
        for task in calls:
            model = self._calls[task][0].model
            if model is not None and not model.on_thread:
                task.cancel()
        return calls
