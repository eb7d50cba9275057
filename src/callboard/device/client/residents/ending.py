"""The end of resident actors: after their current call, or with their process when that call does not return."""

import asyncio
from typing import TYPE_CHECKING, Protocol

from callboard.actors.errors import ActorStopped, AskTimeout
from callboard.device.client.line.refusals import marked
from callboard.device.client.residents.line import on_loop
from callboard.device.client.residents.resident import Resident
from callboard.device.protocol.messages import StopActor

if TYPE_CHECKING:
    from callboard.device.client.residents.registry import Residents

__all__ = ["Killable", "stop", "stop_and_wait"]


class Killable(Protocol):
    """A process that has one actor only, and no ops."""

    def kill(self) -> None:
        """End it without grace, when its actor is closed next."""

    async def gone(self) -> None:
        """Wait until nothing of it is left."""


def stop(residents: "Residents", actor: Resident, kill: bool | None = None) -> None:
    """Ask the actor to end, and kill its process if it does not, where that is wanted. Any thread.

    Args:
        residents: The actors of its host.
        actor: The actor.
        kill: Kill the process ``close_timeout`` seconds later; None: if the actor is its only one.
    """
    if actor.stopped is None:
        actor.stopped = ActorStopped(f"{residents.port.name}: resident actor {actor.name} was stopped")
        on_loop(residents.port, lambda: _ask(residents, actor))
    grace = residents.port.config.close_timeout
    if _kills(residents, kill):
        on_loop(residents.port, lambda: _kill_later(residents, actor, grace))


def _ask(residents: "Residents", actor: Resident) -> None:
    """Stop it in the active host and in the standby.

    If there is no context that could report its end, it has ended now.
    """
    actor.changed()
    residents.post(StopActor(actor.id))
    if residents.port.outbox.host is None:
        residents.forget(actor)
        residents.changed()


def _kills(residents: "Residents", kill: bool | None) -> bool:
    return residents.isolated and (residents.own is not None if kill is None else kill)


def _kill_later(residents: "Residents", actor: Resident, grace: float) -> None:
    if actor.overdue is None and residents.has(actor):
        actor.overdue = residents.port.loop.call_later(grace, _kill, residents, actor, grace)


def _kill(residents: "Residents", actor: Resident, seconds: float) -> None:
    if residents.has(actor):
        residents.kill(actor, f"resident actor {actor.name} did not end within {seconds:g} s after it was stopped")


async def stop_and_wait(residents: "Residents", actor: Resident, timeout: float, kill: bool | None) -> None:
    """Ask the actor to end and wait until it has; see :meth:`ResidentRef.stop_and_wait`."""
    stop(residents, actor, False)
    try:
        async with asyncio.timeout(timeout):
            await residents.until_stopped(actor)
    except TimeoutError:
        if not _kills(residents, kill):
            where = f"{residents.port.name}: resident actor {actor.name}"
            late = f"has not ended {timeout:g} s after it was stopped: its code does not return"
            error = AskTimeout(f"{where} {late}; {_cure(residents)}")
            raise marked(error, residents.port.name, residents.port.generation) from None
        _kill(residents, actor, timeout)
        await residents.until_stopped(actor)  # the loss of the context is noticed within seconds
        if residents.own is not None:
            await residents.own.gone()


def _cure(residents: "Residents") -> str:
    if not residents.isolated:
        return (
            "a thread cannot be killed: start the actor with own_process=True, or open the device with "
            "isolation='process' and pass kill=True"
        )
    if residents.own is not None:
        return "without kill=False its process is killed then"
    return (
        "pass kill=True to kill the device's host, which costs its context and the arrays in it, or start the actor "
        "with own_process=True, which costs nothing else"
    )
