"""``compare``: one request that the active version has answered runs on a version in shadow as well."""

import asyncio
from collections.abc import Callable
from typing import Any

from callboard.actors.clock import Clock
from callboard.patterns.hotswap.canary import Canary, is_failure
from callboard.patterns.hotswap.versions import Version
from callboard.patterns.requests.calling import deliverable
from callboard.patterns.requests.errors import DeadlineExceeded
from callboard.patterns.requests.workers import within

__all__ = ["compare"]


async def compare(
    version: Version,
    canary: Canary,
    item: Any,
    expected: Any,
    timeout: float | None,
    clock: Clock,
    ended: Callable[..., None],
) -> None:
    """Run it, and compare the two responses.

    Args:
        version: The version in shadow.
        canary: Settings of its trial.
        item: Item of the request.
        expected: Response of the active version.
        timeout: Seconds that the request had; None: no limit. A call that takes longer fails the trial.
        clock: Tells the time.
        ended: Gets the end, as ``Swapper.ended``; not called where the request did not reach the version.
    """
    started, judged = clock.time(), None
    call: asyncio.Task[Any] | None = None
    late = False
    try:
        try:
            if timeout is None or version.model.server is not None:
                response = await version.model(item, timeout=timeout)
            else:
                call = running = asyncio.ensure_future(version.model(item))
                running.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be late
                late = not await within(running, timeout, clock)
                if late:
                    raise DeadlineExceeded("the call took longer than its request had", "run", timeout)
                response = running.result()
            version.completed += 1
        except Exception as e:  # of the user's model: the trial has failed with this request, if it has run
            version.failed += 1
            if not is_failure(e):
                return
            failed = True
        else:
            try:
                failed = not (canary.good(response) and canary.agrees(expected, response))
            except Exception as e:  # of the user's functions
                failed, judged = True, deliverable(e)
        ended(version, failed=failed, seconds=clock.time() - started, error=judged)
    finally:
        if call is not None and not call.done():
            if not (late and version.model.on_thread):  # which cannot be interrupted, and keeps its place
                call.cancel()
            await asyncio.wait({call})
