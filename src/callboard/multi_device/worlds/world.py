"""``World``: devices that do collectives, formed again when one of them is lost."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from callboard.actors.clock import Cancellable, Clock, LoopClock
from callboard.actors.handles import Handle
from callboard.core.errors import AccelError, BackendUnavailable, ContextLost, Unrecoverable, WorldLost
from callboard.device.client.handle import Device
from callboard.device.client.line.entries import origin_of
from callboard.device.client.prepared import Sent, prepare
from callboard.device.supervision.watch import Lost, Stopped
from callboard.kernel.collective.messages import Leave, Run
from callboard.multi_device.members import check_members
from callboard.multi_device.worlds.calls import Collectives, all_refs
from callboard.multi_device.worlds.errors import WorldStopped
from callboard.multi_device.worlds.flight import Flight
from callboard.multi_device.worlds.forming import form, leave, next_world
from callboard.multi_device.worlds.group import Group
from callboard.multi_device.worlds.parts import RankPart
from callboard.multi_device.worlds.prepared import PartCall, PreparedCollective, key_of
from callboard.multi_device.worlds.reply import Collective
from callboard.multi_device.worlds.requests import Request, Requests
from callboard.multi_device.worlds.stats import WorldHealth, WorldStats

__all__ = ["World"]

_log = logging.getLogger(__name__)

TRIES = 3
"""Times in a row that forming may fail for another reason than a lost device."""

SAID = 1.0
"""Seconds in which a rank that has left a world must report the reason, after another rank has reported that it
left."""

MOST_PREPARED = 1024
"""Prepared collectives at most that a world caches."""

_order = threading.Lock()
"""Held while a call is submitted to its ranks: all devices are given the calls of all worlds in one order, so no two
ranks wait for each other in different calls."""


class World(Handle, Collectives):
    """Open devices as the ranks of collectives. Created by :func:`callboard.world`; belongs to one event loop.

    When a rank's device is lost, all ranks abort; every collective in flight fails with :class:`.WorldLost`, which
    names the rank; and the world forms again, under a new number that distinguishes it from the old one, as soon as the
    device has its next context. Calls meanwhile are refused: ``await world.ready()``. A collective without progress for
    ``timeout`` seconds counts as hung, with the same result.

    A part that fails for a reason of its own (its operand's producer failed, no memory for its result) ends the
    formation, too, because the other ranks already wait for it: that collective fails with that error.

    Attributes:
        devices: The devices, in order of rank.
    """

    def __init__(self, devices: Sequence[Device], timeout: float, form_timeout: float, clock: Clock | None) -> None:
        self.devices = tuple(devices)
        if not self.devices:
            raise ValueError("world: devices is empty; a world has at least one rank")
        check_members("world", self.devices)
        if len({device.uuid for device in self.devices}) != len(self.devices):
            raise ValueError("world: a device is given twice; each rank has a device of its own")
        if len({device.backend for device in self.devices}) != 1:
            raise ValueError("world: devices of several backends; the ranks of a world are of one")
        for name, value in (("timeout", timeout), ("form_timeout", form_timeout)):
            if not value > 0:
                raise ValueError(f"world: {name} is {value}; it must be more than 0")
        self.loop = asyncio.get_running_loop()
        self._requests = Requests(self.devices)
        self._timeout = timeout
        self._form_timeout = form_timeout
        self._clock = clock or LoopClock()
        self._state = "forming"
        self._error: AccelError | None = None
        self._changed = asyncio.Event()
        self._number = 0
        self._begun = 0  # the number that is forming, or the same
        self._formation = 0
        self._generations: list[int] = []
        self._call_number = 0
        self._after = [0] * len(self.devices)
        self._flights: dict[Flight, None] = {}
        self._prepared: dict[tuple[Any, ...], PreparedCollective] = {}
        self._progress = 0.0
        self._timer: Cancellable | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = self._clock.time()
        self._formed_in = 0.0
        self._losses = self._completed = self._failed = self._sent_bytes = self._calls = 0
        self._closing = False
        for rank, device in enumerate(self.devices):
            self._spawn(self._watch(rank, device), f"watching rank {rank}")
        self._spawn(self._form(), "forming a world")

    # -- collectives ---------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.devices)

    def group(self) -> Group:
        """Several collectives that begin together: ``with world.group() as group: ...``."""
        return Group(self.loop, self._requests, self._submit)

    def _call(self, request: Request, result: Any) -> Any:
        reply: Collective[Any] = Collective(self.loop, request.kind, result)
        self._submit([request], [reply])
        return reply

    def _each(self, kind: str, xs: Sequence[Any], out: Sequence[Any] | None, *op: Any) -> Collective[Any]:
        key = key_of(kind, xs, out, op)
        known = None if key is None else self._prepared.get(key)
        reply: Collective[Any] = Collective(self.loop, kind, all_refs)
        if known is not None:
            with _order:
                self._check_ready()
                parts = known.ready(xs, out, self._number, self._call_number + 1, self._after)
                flight = None if parts is None else self._send(parts, [reply])
            if parts is not None and flight is not None:
                told = flight.parts
                reply.called(tuple([part.refs[0] for part in told]), told)
                self._count(flight, known.sent_bytes)
                return reply
        request = getattr(self._requests, kind)(xs, *op, out)
        parts, sent_bytes = self._submit([request], [reply])
        if key is not None and not any(step.shows for step in request.ranks.values()):
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            self._prepared[key] = PreparedCollective(parts, xs, out, sent_bytes)
        return reply

    def _submit(self, requests: Sequence[Request], replies: Sequence[Collective[Any]]) -> tuple[list[PartCall], int]:
        """Call them and return the parts, and how many bytes they send."""
        ranks = sorted({rank for request in requests for rank in request.ranks})
        parts = {rank: RankPart(self.devices[rank], rank, self.size, requests) for rank in ranks}
        with _order:
            self._check_ready()
            number, call = self._number, self._call_number + 1
            ready: list[PartCall] = []
            for rank, part in parts.items():
                message = part.message(number, call, self._after[rank])
                prepared, operands, numbers = prepare(self.devices[rank]._port, message, Run.returns)
                places = prepared.places(operands, message) or []
                ready.append(PartCall(rank, prepared, places, operands, numbers))
            flight = self._send(ready, replies)
        refs = {part.rank: parts[part.rank].refs(part.refs) for part in flight.parts}
        for at, (request, reply) in enumerate(zip(requests, replies, strict=True)):
            reply.called(tuple(refs[rank][at] for rank in request.results), flight.parts)
        sent_bytes = sum(part.sent_bytes for part in parts.values())
        self._count(flight, sent_bytes)
        return ready, sent_bytes

    def _send(self, ready: Sequence[PartCall], replies: Sequence[Collective[Any]]) -> Flight:
        """Submit the parts of the next call, all of which have been checked."""
        number, call = self._number, self._call_number + 1
        self._call_number = call
        sent: list[Sent] = []
        try:
            try:
                for _, prepared, places, _, numbers in ready:  # before all else: the last one sent begins the work
                    sent.append(prepared.send(places, numbers))
            finally:
                flight = Flight(number, call, replies, self._part_failed, self._ended)
                origin = origin_of(4)
                for (rank, prepared, _, operands, _), one in zip(ready, sent, strict=False):
                    prepared.enter(one, operands, flight.part(rank, prepared.port), origin)
                    self._after[rank] = call
        except Exception as e:  # the other ranks may have theirs
            rank = ready[len(sent)].rank if len(sent) < len(ready) else -1
            self._on_loop(self._lose, number, rank, f"its part of call {call} was refused: {e}")
            raise
        return flight

    def _count(self, flight: Flight, sent_bytes: int) -> None:
        self._sent_bytes += sent_bytes
        self._calls += 1
        if asyncio._get_running_loop() is self.loop:
            self._begin(flight)
        else:
            self.loop.call_soon_threadsafe(self._begin, flight)

    def _check_ready(self) -> None:
        if self._closing or self._state == "stopped":
            raise WorldStopped(f"the world has stopped: {self._error}" if not self._closing else "the world is closed")
        for rank, (device, generation) in enumerate(zip(self.devices, self._generations, strict=False)):
            if device.generation != generation:
                self._on_loop(self._lose, self._number, rank, f"{device.name} was lost")
                raise WorldLost(f"rank {rank} ({device.name}) was lost; await world.ready()", rank, self._formation)
        if self._state != "ready":
            why = f" after: {self._error}" if self._error else ""
            raise WorldLost(f"the world is forming{why}; await world.ready()", -1, self._formation)

    # -- its life ------------------------------------------------------------------------------------------------------

    @property
    def formation(self) -> int:
        """The number of times it has formed: 1 when first ready, one more after each loss."""
        return self._formation

    async def ready(self) -> Self:
        """Wait until it takes collectives; gives the world.

        Raises:
            WorldStopped: It will not be ready again; ``__cause__`` is the reason.
        """
        while self._state == "forming":
            self._changed.clear()
            await self._changed.wait()
        if self._state == "closed":
            raise WorldStopped("the world is closed")
        if self._state != "ready":
            raise WorldStopped(f"the world is {self._state}: {self._error}") from self._error
        return self

    async def split(self, colors: Sequence[int | None], keys: Sequence[int] | None = None) -> "dict[int, World]":
        """Worlds of the ranks of one color each (``ncclCommSplit``).

        They are worlds of their own: they form by themselves, outlive this one, and are closed by themselves.

        Args:
            colors: Color of each rank; None: the rank is in no new world.
            keys: Ranks of a color are in the order of their keys, then of their ranks here; None: of their ranks.

        Raises:
            ValueError: Not one for each rank.
            AccelError: One does not form; none is left.
        """
        for name, given in (("colors", colors), ("keys", colors if keys is None else keys)):
            if len(given) != self.size:
                raise ValueError(f"split: {name} has {len(given)} numbers; the world has {self.size} ranks")
        order = sorted(range(self.size), key=lambda rank: (keys[rank] if keys else 0, rank))
        found: dict[int, list[Device]] = {}
        for rank in order:
            color = colors[rank]
            if color is not None:
                found.setdefault(color, []).append(self.devices[rank])
        made = {c: World(found[c], self._timeout, self._form_timeout, self._clock) for c in sorted(found)}
        try:
            for one in made.values():
                await one.ready()
        except BaseException:  # a cancellation, too: end what was started
            for one in made.values():
                await one.close(drain=False)
            raise
        return made

    async def close(self, *, drain: bool = True) -> None:
        """Leave: no more collectives. The devices stay open.

        Args:
            drain: Wait for those in flight first, at most until they count as hung; else they fail with ``WorldLost``.
        """
        if self._state == "closed":
            return
        self._closing = True  # a close that was cancelled while it waited is repeated
        while drain and self._flights:
            await _settled(next(iter(self._flights)).collectives[0])
        self._state = "closed"
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        error = WorldLost("the world was closed", -1, self._formation)
        self._fail_flights(error, -1)
        self._changed.set()
        for number in sorted({self._number, self._begun}):  # two if it was forming again
            await leave(self.devices, Leave(world=number, reason=str(error), formation=self._formation))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: Any) -> None:
        await self.close(drain=kind is None)

    # -- what it tells -------------------------------------------------------------------------------------------------

    def stats(self) -> WorldStats:
        """Figures; asks no host."""
        return WorldStats(
            size=self.size,
            formation=self._formation,
            losses=self._losses,
            calls=self._calls,
            completed=self._completed,
            failed=self._failed,
            in_flight=len(self._flights),
            sent_bytes=self._sent_bytes,
            formed_in=self._formed_in,
        )

    def health(self) -> WorldHealth:
        """State of the world and of its devices; never waits."""
        return WorldHealth(
            state=self._state,
            ok=self._state == "ready",
            formation=self._formation,
            devices=tuple(device.health().state for device in self.devices),
            error=None if self._error is None else str(self._error),
        )

    def __repr__(self) -> str:
        names = ", ".join(device.name for device in self.devices)
        return f"<World of {names}, {self._state}, formation {self._formation}>"

    # -- flights -------------------------------------------------------------------------------------------------------

    def _begin(self, flight: Flight) -> None:
        if not self._flights:
            self._progress = self._clock.time()
        self._flights[flight] = None
        flight.begin()
        if self._timer is None:
            self._timer = self._clock.call_later(self._timeout, self._look)

    def _ended(self, flight: Flight, ok: bool) -> None:
        self._flights.pop(flight, None)
        self._progress = self._clock.time()
        self._completed += ok
        self._failed += not ok

    def _look(self) -> None:
        """Find a hang: for ``timeout`` seconds nothing has ended, or begun if nothing was in flight."""
        self._timer = None
        if not self._flights:
            return
        left = self._progress + self._timeout - self._clock.time()
        if left <= 0:
            oldest = next(iter(self._flights))
            kinds = ", ".join(collective.kind for collective in oldest.collectives)
            self._lose(
                self._number, -1, f"nothing has ended for {self._timeout:g} s; call {oldest.call} ({kinds}) hangs"
            )
        else:
            self._timer = self._clock.call_later(left, self._look)

    def _part_failed(self, flight: Flight, rank: int, error: BaseException) -> None:
        name, number = self.devices[rank].name, flight.world
        if isinstance(error, WorldLost) and self._is_told_later(flight, error):
            if flight.held is None:
                self._clock.call_later(SAID, self._say_held, flight)
            flight.held = rank, error
            return
        if isinstance(error, WorldLost) and self._generations[rank] == self.devices[rank].generation:
            self._lose(number, error.rank if error.rank >= 0 else self._rank_lost(), str(error))
        elif isinstance(error, ContextLost | Unrecoverable):
            self._lose(number, rank, f"{name} was lost: {error}")
        else:
            error.add_note(f"it was the part of rank {rank} ({name}) of call {flight.call}")
            flight.fail(lambda: error)
            self._lose(number, rank, f"its part of call {flight.call} failed: {error}")
        flight.fail(lambda: WorldLost(f"the part of rank {rank} failed: {error}", rank))  # of a formation that is over

    def _is_told_later(self, flight: Flight, error: WorldLost) -> bool:
        """True if the rank that left the world may still report why: its part's error comes from another host."""
        first = error.rank
        return (
            first in flight.pending
            and not flight.overdue
            and flight.world == self._number
            and self._generations[first] == self.devices[first].generation
        )

    def _say_held(self, flight: Flight) -> None:
        flight.overdue = True
        if not flight.done and flight.held is not None:
            self._part_failed(flight, *flight.held)

    def _rank_lost(self) -> int:
        for rank, device in enumerate(self.devices):
            if device.stopped or device.generation != self._generations[rank]:
                return rank
        return -1

    def _fail_flights(self, error: WorldLost, rank: int) -> None:
        flights, self._flights = self._flights, {}
        for flight in flights:
            flight.fail(lambda: WorldLost(str(error), rank, error.formation))

    # -- losses --------------------------------------------------------------------------------------------------------

    async def _watch(self, rank: int, device: Device) -> None:
        async for event in device.events():
            if isinstance(event, Lost):
                self._lose(self._number, rank, f"{device.name} was lost: {event.error}")
            elif isinstance(event, Stopped):
                self._stop(AccelError(f"rank {rank}: {event.error}"))

    def _lose(self, number: int, rank: int, why: str) -> None:
        """End this formation, and begin the next; nothing if another one has begun."""
        if self._state != "ready" or number != self._number:
            return
        self._state = "forming"
        self._losses += 1
        self._began = self._clock.time()
        whose = f"rank {rank}: " if rank >= 0 else ""
        error = self._error = WorldLost(f"{whose}{why}", rank, self._formation)
        _log.warning("a world of %d ranks lost its formation %d: %s", self.size, self._formation, error)
        self._fail_flights(error, rank)
        message = Leave(world=number, lost=rank, reason=str(error), formation=self._formation)
        self._spawn(leave(self.devices, message), "leaving")
        if not self._closing:
            self._spawn(self._form(), "forming a world")

    def _stop(self, error: AccelError) -> None:
        if self._state in ("closed", "stopped"):
            return
        self._state, self._error = "stopped", error
        lost = WorldLost(f"the world has stopped: {error}", -1, self._formation)
        self._fail_flights(lost, -1)
        self._changed.set()
        self._spawn(leave(self.devices, Leave(world=self._number, reason=str(lost))), "leaving")

    async def _form(self) -> None:
        tries = 0
        while self._state == "forming":
            number = self._begun = next_world()
            try:
                generations = await form(self.devices, number, self._form_timeout, self._timeout)
            except ContextLost as e:
                self._error = self._error or e
                await leave(self.devices, Leave(world=number, reason=str(e)))
            except (AccelError, BackendUnavailable, TimeoutError) as e:
                tries += 1
                await leave(self.devices, Leave(world=number, reason=str(e)))
                if not self._formation or tries >= TRIES or isinstance(e, Unrecoverable | BackendUnavailable):
                    self._stop(e if isinstance(e, AccelError) else AccelError(str(e)))
            except Exception as e:  # of any other class: a world that waits for ever would be worse
                _log.exception("a world of %d ranks cannot form", self.size)
                self._stop(AccelError(f"{type(e).__name__}: {e}"))
            else:
                self._publish(number, generations)

    def _publish(self, number: int, generations: list[int]) -> None:
        with _order:
            self._number, self._generations = number, generations
            self._call_number, self._after = 0, [0] * self.size
            self._formation += 1
            self._state = "ready"
        self._formed_in = self._clock.time() - self._began
        self._changed.set()

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: Any, name: str) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_loop(self, call: Callable[..., None], *args: Any) -> None:
        if asyncio._get_running_loop() is self.loop:
            call(*args)
        else:
            self.loop.call_soon_threadsafe(call, *args)


async def _settled(reply: Collective[Any]) -> None:
    with contextlib.suppress(Exception):  # the caller of the collective gets it; here only its end counts
        await reply
