"""Life and death of a cell: start, failure, restart, stop. Everything here runs in the cell's own task.

The strategy is the parent's, but the decision is taken by the cell that failed: a parent that awaits its child inside a
handler can so never dead-lock the child's restart.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from callboard.actors.errors import AccelError, ActorInitError, ActorStopped, returned
from callboard.actors.supervision import Decision, Directive, unwrap
from callboard.events.kinds import ACTOR
from callboard.events.ring import EVENTS, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from callboard.actors._runtime.cell import Cell

__all__ = ["Stop", "finish", "first_start", "supervise"]

_log = logging.getLogger("callboard.actors")

GRACE: Final = 1.0
"""Seconds that clean-up may take after the time to stop is over."""


class Stop(Exception):
    """Unwinds a cell's task; never seen by user code."""

    def __init__(self, cause: BaseException | None) -> None:
        super().__init__(cause)
        self.cause = cause


class _InitFailure(Exception):
    def __init__(self, error: ActorInitError) -> None:
        super().__init__(error)
        self.error = error


def stopped_error(cell: "Cell") -> ActorStopped:
    """The error for askers of a stopped actor."""
    error = ActorStopped(f"{cell.path} is stopped ({cause_of(cell)})")
    error.__cause__ = cell.cause
    return error


def cause_of(cell: "Cell") -> str:
    """The reason why a cell stops or has stopped, for errors."""
    if cell.cause is not None:
        return f"it failed: {cell.cause!r}"
    if cell.port.loop.is_closed():
        return "its event loop is closed"
    if cell.system.is_stopping:
        return f"the system {cell.system.name} stops"
    return "it was asked to stop"


async def _finish_hook(hook: str, result: Awaitable[None] | None) -> None:
    if result is not None:
        if not inspect.isawaitable(result):
            raise returned(hook, result, "None, or something that can be awaited: make it async")
        await result


# -- start -------------------------------------------------------------------------------------------------------------


async def first_start(cell: "Cell") -> None:
    """Create the first instance; a failure goes to the supervisor."""
    try:
        await _create(cell, None)
    except _InitFailure as failure:
        await supervise(cell, failure.error, None)


async def _create(cell: "Cell", restarted_by: BaseException | None) -> None:
    try:
        cell.constructing = True
        try:
            actor = cell.props.make()
        finally:
            cell.constructing = False
        if not hasattr(type(actor), "supervision"):
            raise returned(f"{cell.props!r}", actor, "a new actor")
        if actor.__dict__.get("_cell") is not cell:
            raise TypeError(f"{cell.props!r} returned an existing actor; the factory must return a new one")
        cell.adopt(actor)
        if restarted_by is None:
            await _finish_hook("pre_start", actor.pre_start())
        else:
            await _finish_hook("post_restart", actor.post_restart(restarted_by))
        cell.started = True
        _record(cell, "started" if restarted_by is None else "restarted", restarted_by)
    except BaseException as error:  # from user code: for the supervisor, except the cases below
        if isinstance(error, asyncio.CancelledError) and cell.task is not None and cell.task.cancelling():
            raise
        _let_fatal_pass(cell, error)
        cell.incarnation += 1  # ticks and completions that the half-made instance began are stale
        cell.timers.cancel_all()
        await cell.background.cancel_all()
        await cell.children.stop_all(None)
        cell.actor = None
        failure = ActorInitError(f"{cell.path} could not start: {error!r}")
        failure.__cause__ = error
        raise _InitFailure(failure) from None


# -- failure -----------------------------------------------------------------------------------------------------------


def _let_fatal_pass(cell: "Cell", error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        cell.system._fatal(error)
        raise Stop(error) from None


def _decide(cell: "Cell", error: BaseException) -> tuple[Decision, BaseException]:
    """The decision, and the error that it is about: that of the strategy, if that could not decide."""
    parent = cell.parent
    if parent is None:
        return Decision(Directive.STOP), error
    strategy = parent.strategy
    log = parent.group_log if strategy.whole_group else cell.restart_log
    hook = f"{type(strategy).__qualname__}.decide of {parent.path}"
    try:
        decision: Any = strategy.decide(error, log, cell.port.clock.time(), random.random())
        if not (isinstance(decision, Decision) and isinstance(decision.directive, Directive)):
            raise returned(hook, decision, "a Decision with a cb.Directive, such as super().decide(...)")
    except Exception as e:  # rules may be the user's code
        _log.exception("the supervision rules of %s failed; %s stops", parent.path, cell.path)
        undecided = AccelError(f"{hook} failed: {e!r}; it was to decide about {error!r}")
        undecided.__cause__ = e
        return Decision(Directive.STOP), undecided
    return decision, error


def _report(cell: "Cell", error: BaseException, message: Any, decision: Decision) -> None:
    """Log a failure, once: where it is decided, not where it passes by."""
    while_ = f" while handling {type(message).__qualname__}" if message is not None else ""
    outcome = decision.directive.name.lower() + (" (restart budget is spent)" if decision.exhausted else "")
    level = logging.WARNING if decision.directive is Directive.RESUME else logging.ERROR
    _log.log(level, "%s failed%s: %s: %r", cell.path, while_, outcome, error, exc_info=error)


async def supervise(cell: "Cell", error: BaseException, message: Any) -> None:
    """Apply the parent's strategy to a failure of this cell."""
    while True:
        error = unwrap(error)
        _let_fatal_pass(cell, error)
        decision, error = _decide(cell, error)
        if decision.directive is Directive.ESCALATE and cell.parent is not None:
            cell.suspended = True
            cell.parent.post_system(on_escalated, cell, error)
            return
        _report(cell, error, message, decision)
        _record(cell, "failed", error)
        if decision.directive is Directive.RESUME and cell.actor is not None:
            _resume(cell)
            return
        if decision.directive is Directive.STOP:
            _tell_siblings(cell, on_group_stop, error)
            raise Stop(error) from None
        # Without an instance there is nothing to resume: then resume means to try again.
        _tell_siblings(cell, on_group_restart, error)
        try:
            await _restart(cell, error, message, decision.delay)
            return
        except _InitFailure as failure:
            error, message = failure.error, None


def _tell_siblings(cell: "Cell", call: "Callable[..., Any]", error: BaseException) -> None:
    if cell.parent is not None and cell.parent.strategy.whole_group:
        for sibling in cell.parent.children.cells():
            if sibling is not cell:
                sibling.post_system(call, error)


def _resume(cell: "Cell") -> None:
    cell.suspended = False
    for child in cell.children.cells():
        child.post_system(on_resume)


async def _restart(cell: "Cell", error: BaseException, message: Any, delay: float) -> None:
    cell.incarnation += 1
    cell.suspended = False
    cell.timers.cancel_all()
    await cell.background.cancel_all()
    old, was_started = cell.actor, cell.started
    cell.started = False
    if old is not None and was_started:
        try:
            await old.pre_restart(error, message)
        except (Exception, asyncio.CancelledError) as trouble:  # of the user's hook
            if isinstance(trouble, asyncio.CancelledError) and cell.task is not None and cell.task.cancelling():
                raise
            _log.exception("pre_restart of %s failed; the restart goes on", cell.path)
    cell.stash.put_back()
    cell.actor = None
    for survivor in cell.children.cells():
        survivor.post_system(on_group_restart, error)
    if delay > 0:
        cell.suspended = True
        cell.port.clock.call_later(delay, cell.post_system, on_backoff_over, cell.incarnation, error)
    else:
        await _create(cell, error)


# -- system messages ---------------------------------------------------------------------------------------------------


def on_stop(cell: "Cell") -> None:
    """The actor was asked to stop."""
    raise Stop(None)


def on_group_stop(cell: "Cell", error: BaseException) -> None:
    """A sibling under AllForOne was stopped."""
    raise Stop(error)


async def on_group_restart(cell: "Cell", error: BaseException) -> None:
    """A sibling under AllForOne, or the parent, was restarted."""
    try:
        await _restart(cell, error, None, 0.0)
    except _InitFailure as failure:
        await supervise(cell, failure.error, None)


async def on_backoff_over(cell: "Cell", incarnation: int, error: BaseException) -> None:
    """The wait before a restart is over."""
    if incarnation != cell.incarnation:
        return
    cell.suspended = False
    try:
        await _create(cell, error)
    except _InitFailure as failure:
        await supervise(cell, failure.error, None)


async def on_failure(cell: "Cell", incarnation: int, error: BaseException, message: Any) -> None:
    """A completion or a background task failed; failures of an old incarnation are ignored."""
    if incarnation == cell.incarnation:
        await supervise(cell, error, message)


async def on_escalated(cell: "Cell", child: "Cell", error: BaseException) -> None:
    """A child's failure is now this cell's failure."""
    if cell.children.holds(child):
        await supervise(cell, error, None)


def on_resume(cell: "Cell") -> None:
    """Resume after the parent has handled a failure that this cell escalated."""
    if cell.suspended and cell.actor is not None:
        _resume(cell)


def on_listen(cell: "Cell", key: Any, listener: "Callable[[BaseException | None], object]") -> None:
    """Call ``listener(cause)`` when the cell has ended; immediately if it has ended already."""
    cell.listeners[key] = listener


def on_unlisten(cell: "Cell", key: Any) -> None:
    """Forget a listener."""
    cell.listeners.pop(key, None)


# -- end ---------------------------------------------------------------------------------------------------------------


async def finish(cell: "Cell", cause: BaseException | None) -> None:
    """Close the user lane, stop the children, call ``post_stop``, notify the watchers. Never raises."""
    cell.stopping = True
    cell.cause = cause
    cell.incarnation += 1
    _close(cell)
    clock = cell.port.clock
    deadline = cell.stop_deadline
    if deadline is None:
        deadline = clock.time() + cell.system.stop_timeout
    await _endure(cell, cell.background.cancel_all())
    await _endure(cell, cell.children.stop_all(max(0.0, deadline - clock.time())))
    if cell.started and cell.actor is not None:
        await _bounded(cell, cell.actor, max(0.0, deadline - clock.time()) + GRACE)
    cell.timers.cancel_all()
    if cell.force_timer is not None:
        cell.force_timer.cancel()
    cell.dispatch.forget()
    cell.watches.forget_all()
    cell.gone = True
    _record(cell, "stopped", cause)
    listeners = dict(cell.listeners)
    cell.listeners.clear()
    cell.wake()
    if cell.parent is not None:
        cell.parent.children.remove(cell)
    for listener in listeners.values():
        listener(cause)
    if cell.parent is None:
        await cell.system._guardian_gone(cause)


def _close(cell: "Cell") -> None:
    # The order matters: an item appended after the drain finds ``awake`` false and drains itself.
    cell.closed = True
    cell.awake = False
    cell.lane.close()
    cell.timers.cancel_all()
    for ask in cell.inflight:
        ask.refuse(stopped_error(cell), seen=True)
    cell.inflight.clear()
    cell.stash.drop()
    cell.drain()


def _record(cell: "Cell", what: str, cause: BaseException | None) -> None:
    ring = EVENTS.ring
    if ring is not None:
        ring.append((next(ring.numbers), now(), ACTOR, cell.path, what, "" if cause is None else type(cause).__name__))


async def _endure(cell: "Cell", step: Awaitable[Any]) -> None:
    """Take a step of the clean-up; a cancel may cut it short and must not skip the rest."""
    try:
        await step
    except asyncio.CancelledError:
        _log.warning("%s: stopping was cut short", cell.path)
    except Exception:  # user code may fail in any way, and the next step is still due
        _log.exception("%s: a step of stopping failed", cell.path)


async def _bounded(cell: "Cell", actor: Any, seconds: float) -> None:
    task = cell.task
    assert task is not None
    timer = None
    try:
        result = actor.post_stop()
        if result is not None:
            timer = cell.port.clock.call_later(seconds, task.cancel)
            await result
    except asyncio.CancelledError:
        _log.error("post_stop of %s was cancelled", cell.path)
    except (KeyboardInterrupt, SystemExit) as error:
        cell.system._fatal(error)
    except BaseException:  # user code may fail in any way, and the actor still ends
        _log.exception("post_stop of %s failed", cell.path)
    finally:
        if timer is not None:
            timer.cancel()
