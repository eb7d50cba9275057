"""``Starts``: finds the resident actor whose setup loses the context, among all that were being set up."""

import asyncio
import logging
import time
from collections.abc import Callable

from callboard.actors.errors import ActorStopped
from callboard.core.errors import ContextPoisoned
from callboard.device.client.line.status import ResidentState
from callboard.device.client.residents.registry import Residents
from callboard.device.client.residents.resident import Resident
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.supervision.hosts.base import Host

__all__ = ["Starts"]

log = logging.getLogger("callboard.resident")

MOST_LOSSES = 3
"""Contexts that the setup of an actor may lose in a row, the last of them alone: as many as a request."""

SHORTEST, LONGEST = 15.0, 60.0
"""Seconds for which calls wait for a setup that runs alone: twice as long as it took to lose the context, within
these."""

BEING_SET_UP = ResidentState.STARTING, ResidentState.RESTARTING


class _Suspect:
    """An actor that was being set up at a loss, and has not been set up since.

    Attributes:
        losses: Number of such losses.
        lasted: Seconds from the beginning of its setup to the loss; the longest.
        held: It waits in the present host, and has not begun.
    """

    __slots__ = ("held", "lasted", "losses")

    def __init__(self) -> None:
        self.losses = 0
        self.lasted = 0.0
        self.held = True


class Starts:
    """Charges a loss of the context to the actors that were being set up, rather than to the calls in flight.

    An actor that was being set up at a loss is a suspect. In the next context it waits until the others have been set
    up. Then the suspects are set up one at a time, before any call is sent. If the context is lost meanwhile, the
    suspect is the cause: it is stopped at its third loss in a row, or earlier if its ``supervision`` allows fewer
    restarts. One that has been set up is no suspect any more.

    A setup that takes longer than calls may wait goes on beside them. It has lasted longer alone than until the loss:
    further losses are charged to the calls in flight, if there are any, until it is done.

    Standbys do not prepare suspects. An actor that is the only one of its process is no suspect: no call of others runs
    there, and the supervisor of that process counts its losses.

    Args:
        residents: The actors of the device.
        noticed: Called when the host has said something about the state of an actor.
    """

    def __init__(self, residents: Residents, noticed: Callable[[], None]) -> None:
        self._residents = residents
        self._noticed = noticed
        self._suspects: dict[int, _Suspect] = {}  # by the actor's id
        self._late: set[int] = set()  # actors for which calls wait no longer, in this context
        self._cleared: set[int] = set()  # those of them that were set up alone; until they are ready
        self._host: Host | None = None
        self._publish: Callable[[], None] | None = None  # while calls wait
        self._timer: asyncio.TimerHandle | None = None
        residents.changed = self.changed

    @property
    def suspected(self) -> bool:
        """True if there are suspects, so that calls have to wait for their setups."""
        return bool(self._suspects)

    def hold(self, host: Host) -> None:
        """Have the suspects wait in a standby, before it takes over."""
        for message in self._residents.suspects():
            host.post(message)

    def opened(self, host: Host, publish: Callable[[], None]) -> None:
        """A context is ready: call ``publish``, which has calls sent to it, when the suspects have been set up."""
        self._host, self._publish = host, publish
        self._wait(SHORTEST)
        self._next()

    def end(self) -> None:
        """The context is lost, or the device has stopped: nothing waits any more."""
        self._host = self._publish = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def lost(self, error: ContextPoisoned, *, began: bool, ready: bool) -> None:
        """The context is lost: note in the error what was being set up, and stop an actor that is the cause.

        Args:
            error: The loss.
            began: There was a host.
            ready: Calls have been sent to the context.
        """
        self.end()
        error.unsent = not ready
        others = ready and self._residents.port.in_flight > 0
        starting = self._starting(besides=self._cleared if others else set()) if began else []
        error.starting = tuple(actor.name for actor in starting)
        self._late.clear()
        for suspect in self._suspects.values():
            suspect.held = True
        if not starting or self._residents.own is not None:
            return
        error.guarded = True
        log.warning(
            "%s: the context was lost during the setup of %s, which %s set up alone next",
            self._residents.port.name,
            " and ".join(f"resident actor {actor.name}" for actor in starting),
            "is" if len(starting) == 1 else "are each",
        )
        for actor in starting:
            suspect = self._suspects.setdefault(actor.id, _Suspect())
            suspect.losses += 1
            suspect.lasted = max(suspect.lasted, time.monotonic() - actor.since)
            self._cleared.discard(actor.id)
        if len(starting) == 1 and not others:
            self._judge(starting[0], error)
        self._tell()

    def changed(self) -> None:
        """An actor has been set up, is being restarted, or has ended."""
        for actor_id in [*self._suspects, *self._cleared]:
            actor = self._residents.find(actor_id)
            if actor is None or actor.state not in BEING_SET_UP:
                self._cleared.discard(actor_id)
                self._suspects.pop(actor_id, None)
                if actor is not None and actor.state is ResidentState.READY:
                    self._tell()
                    self._residents.post(actor.message)  # to the standbys
        self._tell()
        self._next()
        self._noticed()

    def _tell(self) -> None:
        self._residents.suspected = set(self._suspects)

    def _starting(self, besides: set[int]) -> list[Resident]:
        """The actors whose code may run now, as they are being set up."""
        held = {actor_id for actor_id, suspect in self._suspects.items() if suspect.held} | besides
        return [
            actor for actor in self._residents.living_actors() if actor.state in BEING_SET_UP and actor.id not in held
        ]

    def _judge(self, actor: Resident, error: ContextPoisoned) -> None:
        """The context was lost while nothing ran but the setup of this actor."""
        losses = self._suspects[actor.id].losses
        strategy = getattr(actor.cls, "supervision", ResidentActor.supervision)
        if losses < min(MOST_LOSSES, MOST_LOSSES if strategy.max_restarts is None else strategy.max_restarts + 1):
            return
        residents = self._residents
        times = f"{losses} contexts in a row were lost" if losses > 1 else "the context was lost"
        actor.stopped = stopped = ActorStopped(
            f"{residents.port.name}: resident actor {actor.name} has stopped: {times} during its setup, the last while "
            f"nothing else ran: {error}"
        )
        stopped.__cause__ = error
        log.error("%s", stopped, extra={"device": residents.port.name, "resident": actor.name})
        del self._suspects[actor.id]
        residents.stop_everywhere(actor)
        residents.port.loop.call_soon(residents.on_failed, stopped)  # of the next generation

    # -- setups that run alone -----------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Begin the next setup, or have calls sent, unless a setup runs."""
        if self._publish is None or self._starting(besides=self._late | self._cleared):
            return
        assert self._host is not None
        held = [(suspect.losses, actor_id) for actor_id, suspect in self._suspects.items() if suspect.held]
        if not held:
            publish = self._publish
            self.end()
            publish()
            return
        _, actor_id = min(held)
        actor, suspect = self._residents.find(actor_id), self._suspects[actor_id]
        assert actor is not None
        suspect.held = False
        actor.since = time.monotonic()
        self._wait(min(max(SHORTEST, 2 * suspect.lasted), LONGEST))
        self._host.post(actor.message)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._residents.port.loop.call_later(seconds, self._is_late)

    def _is_late(self) -> None:
        for actor in self._starting(besides=self._late | self._cleared):
            self._late.add(actor.id)
            if self._suspects.pop(actor.id, None) is not None:
                self._cleared.add(actor.id)
                self._tell()
            log.warning(
                "%s: calls wait no longer for the setup of resident actor %s, which still runs",
                self._residents.port.name,
                actor.name,
            )
        self._next()
