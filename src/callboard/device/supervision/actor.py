"""``DeviceActor``: the stable address of a device. It outlives every context.

It starts context hosts, keeps a standby, and replaces the active host when that is lost. The next generation opens
when the loss is *detected* (ops called from then on wait for it) and is published when its context is ready. The actor
never awaits a context.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from callboard.actors import Actor
from callboard.core.backend import AccelBackend, DeviceInfo
from callboard.core.errors import AccelError, BackendUnavailable, ContextPoisoned, DeviceStopped, Unrecoverable
from callboard.device.client.line.port import OpPort
from callboard.device.client.residents.registry import Residents
from callboard.device.client.residents.starts import Starts
from callboard.device.config import DeviceConfig, standbys
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import (
    Activate,
    Ask,
    Completions,
    ContextDied,
    DeviceRoomWanted,
    Failing,
    Flush,
    FromHost,
    Held,
    Open,
    ProtocolError,
    Ready,
    Returned,
    RoomWanted,
    Traces,
)
from callboard.device.supervision.changes import ChangedSettings
from callboard.device.supervision.failing import Judge, Stop
from callboard.device.supervision.fleet import Fleet
from callboard.device.supervision.generations import Ordinals, next_generation
from callboard.device.supervision.hosts.base import Host, HostEnd, unreadable
from callboard.device.supervision.hosts.starter import HostStarter
from callboard.device.supervision.lifecycle import Event, State, after
from callboard.device.supervision.mail import ActorFailed, ContextSuspected, HostEnded, HostMessage, StartDue
from callboard.device.supervision.noting import SupervisionLog, note
from callboard.device.supervision.own import OwnProcesses
from callboard.device.supervision.standby import Standby
from callboard.device.supervision.supervisor import DeviceSupervisor, asked
from callboard.device.supervision.watch import EventFeed, GenerationWatch, Lost, Recovered, Stopped

__all__ = ["INTERRUPTED", "DeviceActor"]

DELAYS = (0.0, 0.05, 0.5, 2.0, 10.0)
"""Seconds before a host is started again, by the number of hosts in a row that were lost before they were ready."""


INTERRUPTED = 0.75
"""Seconds that work in flight gets to finish when the application is interrupted: by Ctrl-C, or because the body of the
system or the device's own task is cancelled. A host in a thread gets twice as long."""


class DeviceActor(Actor):
    """One device.

    Args:
        info: The device.
        backend: Backend of the device.
        config: Settings of the device.
        supervisor: Supervisor that decides what follows a loss.
        starter: Starts hosts.
        port: Sends ops and settles them.
        clock: Monotonic seconds.
        parts: Hosts and resident actors of the device, if they are referred to before the device is created.
    """

    def __init__(
        self,
        info: DeviceInfo,
        backend: AccelBackend,
        config: DeviceConfig,
        supervisor: DeviceSupervisor,
        starter: HostStarter,
        port: OpPort,
        clock: Callable[[], float] = time.monotonic,
        parts: tuple[Fleet, Residents] | None = None,
    ) -> None:
        self.info = info
        self.backend = backend
        self.config = config
        self.supervisor = supervisor
        self.port = port
        port.left.replace = lambda: self.interrupt("a cancellation (cancelled_after)")
        self.state = State.STARTING
        self.watch_generation = GenerationWatch()
        self.ordinals = ordinals = Ordinals()
        self.log = SupervisionLog(port.name, ordinals)
        self.events = EventFeed(lambda event: note(port, ordinals, event))
        self.error: AccelError | None = None
        self.host: Host | None = None
        self.on_answer: Callable[[FromHost], None] = lambda _: None
        self.on_loss: Callable[[AccelError], None] = lambda _: None
        self.on_stop: Callable[[Event, AccelError, AccelError], AccelError] = lambda event, error, cause: error
        self.compute_capability = info.compute_capability
        self.close_timeout = config.close_timeout
        self.isolated = starter.isolated
        self.remote = starter.remote
        self._starter = starter
        self.clock = clock
        self._took_over = "cold"
        self.settings = ChangedSettings(config.host.trace)
        self._owes_ready = False  # the active host took over while it was still starting as a standby
        self._lost_at = 0.0
        self._fruitless = 0  # losses since a context was last ready
        if parts is None:
            fleet = Fleet(port.loop, config.max_staged_bytes, starter.isolated, self._serving)
            parts = fleet, Residents(port, fleet.arenas, self._serving, starter.isolated)
        self.fleet, self.residents = parts
        self._standby = Standby(
            self._start,
            self._configured_standby,
            self.log,
            lambda: self.standbys_wanted,
            lambda: self.state not in (State.READY, State.HALF_OPEN),
            self.residents.set_up_now,
            self.residents.living,
            config.step_timeout,
        )
        self.judge = Judge(self)
        self.residents.on_failed = lambda error: self.ref.tell(
            ActorFailed(generation=self.port.generation, error=error)
        )
        self.residents.drop_standby = self._standby.drop
        self.residents.expect = self._standby.expect
        self.starts = Starts(self.residents, self._standby.actor_changed)
        self.arenas = self.fleet.arenas
        self.own = OwnProcesses(self, type(self))
        self._ready: list[asyncio.Future[None]] = []

    # -- start and stop ------------------------------------------------------------------------------------------------

    def pre_start(self) -> None:
        if not self.port.generation:  # else it has been used already
            self.port.generation = next_generation()
        self.ordinals.of(self.port.generation)
        self.ref.tell(StartDue())
        self._standby.starts()

    async def post_stop(self) -> None:
        """End all hosts in order; when this returns, the device holds no process, memory or task."""
        if self.state is not State.STOPPED:
            error = DeviceStopped(f"{self.port.name} was closed")
            error.closed = True
            self._stop(error, Event.STOP, "device shutting down")
        task = asyncio.current_task()
        cancelled = task is not None and task.cancelling()
        timeout = min(self.close_timeout, INTERRUPTED) if cancelled else self.close_timeout
        await self._standby.ended()
        await self.own.close(timeout)  # first: they may have memory of this device open
        await self.fleet.close(timeout)
        self.host = None
        self.residents.close()
        self.arenas.close()
        self.port.close()

    def hurry(self) -> None:
        """Give work in flight :data:`INTERRUPTED` seconds when the device is closed, also if it is being closed."""
        self.close_timeout = min(self.close_timeout, INTERRUPTED)
        self.own.hurry(self.close_timeout)
        self.fleet.hurry(self.close_timeout)

    async def until_ready(self) -> None:
        """Wait until a context is ready.

        Raises:
            DeviceStopped, BackendUnavailable: The device has stopped, so none will be.
        """
        while self.state is not State.READY:
            if self.state is State.STOPPED:
                raise self.error or DeviceStopped(self.port.name)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._ready.append(future)
            await future

    async def until_standby(self) -> bool:
        """Wait until all standbys are ready; False if none is kept.

        Raises:
            DeviceStopped
        """
        others = await self.own.until_standby()
        if self._configured_standby() is None:
            return others
        if not await self._standby.until_ready():
            raise self.error or DeviceStopped(self.port.name)
        return True

    # -- hosts ---------------------------------------------------------------------------------------------------------

    @StartDue.handles
    async def start_due(self, _: StartDue) -> None:
        if self.state is State.HALF_OPEN:
            self._enter(Event.RETRY_DUE)
            if self._take_over():
                return
        if self.state not in (State.STARTING, State.REBUILDING) or self.host is not None:
            return
        self._took_over = "cold"
        self._owes_ready = False
        try:
            host = await self._start("active")
        except (HostEnd, AccelError) as e:
            pause = self._starter.again(e)
            if pause is not None:
                self.timers.start_once("retry", StartDue(), pause)
                return
            self._lose(e if isinstance(e, AccelError) else e.as_loss(self.port.name))
            return
        self._activate(host, Open(self._info(), self.port.generation, self._host_config(), asks=asked(self.supervisor)))

    async def _start(self, role: str) -> Host:
        """Start a host.

        Its messages about calls, and records of ops, are passed on directly and in order; all others go to this actor's
        mailbox.
        """
        cell: list[Host] = []
        port, ref, residents = self.port, self.ref, self.residents

        def on_message(message: FromHost) -> None:
            host = cell[0]
            if type(message) is Completions:
                if host is self.host and port.stopped is None:
                    port.completions(message)
                    if message.returned:
                        residents.caller.returned(message.returned)
            elif isinstance(message, RoomWanted | DeviceRoomWanted | Held | Returned | Traces):
                if host is self.host and not residents.take(host, message):
                    self.on_answer(message)
            else:
                ref.tell(HostMessage(host=host, message=message))

        def on_end(end: HostEnd) -> None:
            if cell:  # else the start was given up
                ref.tell(HostEnded(host=cell[0], end=end))

        try:
            host = await self._starter.start(on_message, on_end, f"{self.port.name}/{role}")
        except (HostEnd, AccelError):
            raise
        except Exception as e:  # no descriptor or no thread is left, or the platform lacks something
            raise HostEnd("failed to start", f"{type(e).__name__}: {e}") from e
        cell.append(host)
        self.fleet.add(host)
        for message in self.residents.starts():
            host.post(message)
        if role == "active":
            self.starts.hold(host)
        return host

    def set_memory_limit(self, limit: int | None) -> None:
        """Have later contexts limit their memory like this, and not as configured."""
        self.settings.set("limit", limit)

    def _serving(self) -> list[Host]:
        return [*(() if self.host is None else (self.host,)), *self._standby.hosts]

    def _activate(self, host: Host, message: Open | Activate) -> None:
        self.host = host
        host.post(message)

    def _configured_standby(self) -> Open | None:
        """The message that opens a standby; None if no standby is configured."""
        if not self.standbys_wanted:
            return None
        kind, _ = standbys(self.config.standby)
        return Open(self._info(), 0, self._host_config(), kind == "hot", asked(self.supervisor))

    def _info(self) -> list[Any]:
        return list(msgspec.to_builtins(self.info))

    def _host_config(self) -> bytes:
        return msgspec.msgpack.encode(self.config.host)

    # -- messages from hosts -------------------------------------------------------------------------------------------

    @HostMessage.handles
    def host_message(self, m: HostMessage) -> None:
        try:
            self._hear(m.host, m.message)
        except Exception as e:  # a host whose message cannot be handled is replaced, whatever the error
            m.host.kill(unreadable(ProtocolError(f"{type(m.message).__name__}: {e}")))

    def _hear(self, host: Host, message: FromHost) -> None:
        if self._standby.has(host):
            if isinstance(message, ContextDied):
                self._standby.failed(host, str(as_error(message.error)))
            else:
                self._standby.hear(host, message)
            return
        if host is not self.host:
            return  # a report from an earlier generation
        match message:
            case Ready(generation=0) if self._owes_ready:
                self._owes_ready = False  # sent as a standby, before it received Activate
            case Ready():
                self._context_ready(message)
            case ContextDied():
                error = as_error(message.error)
                self._lose(error if isinstance(error, AccelError) else ContextPoisoned(str(error)))
            case Failing():
                self.judge.host_failing(host, message)
            case Flush():
                self.port.flush()
                self.on_answer(message)
            case _ if not self.residents.take(host, message):
                self.on_answer(message)

    @ActorFailed.handles
    def actor_failed(self, m: ActorFailed) -> None:
        if m.generation == self.port.generation and self.state is not State.STOPPED:
            self.judge.actor_stopped(m.error)

    @HostEnded.handles
    def host_ended(self, m: HostEnded) -> None:
        if self._standby.has(m.host):
            self._standby.failed(m.host, str(m.end))
        elif m.host is self.host:
            self._lose(m.end.as_loss(self.port.name))

    @ContextSuspected.handles
    def context_suspected(self, m: ContextSuspected) -> None:
        if self.host is None or self.state is not State.READY:
            return  # a host that opens its context finds the error itself
        if m.dead:
            self._lose(ContextPoisoned(f"{self.port.name}: {m.reason}"))
        else:
            self.host.post(Ask(0, "probe"))

    def _context_ready(self, message: Ready) -> None:
        if message.generation != self.port.generation:
            raise ProtocolError(f"generation {message.generation}, not {self.port.generation}")
        given = message.extra.get("compute_capability") or self.info.compute_capability
        self.compute_capability = msgspec.convert(given, tuple[int, int])
        assert self.host is not None
        if after(self.state, Event.CONTEXT_READY) is not None:
            self.starts.opened(self.host, self._publish_ready)

    def _publish_ready(self) -> None:
        if self.host is None or not self._enter(Event.CONTEXT_READY):
            return
        self.settings.tell(self.host)
        self.port.ready(self.host)
        self.watch_generation.publish(generation := self.port.generation)
        now = self.clock()
        if self.port.losses:
            took = now - self._lost_at
            self.events.publish(Recovered(generation, self._took_over, took, now))
            self.log.recovered(took, self._took_over)
        self._wake_ready()
        self._standby.ensure()

    # -- loss and recovery ---------------------------------------------------------------------------------------------

    def _lose(self, error: AccelError) -> None:
        """The active context is lost: open the next generation, fail the accepted ops, let the standby take over."""
        self._lost_at = now = self.clock()
        old = self._dismiss()
        if isinstance(error, BackendUnavailable):
            self._stop(error, Event.UNRECOVERABLE, str(error))  # there was no context to lose
            return
        if not isinstance(error, ContextPoisoned | Unrecoverable):
            what = "was lost" if self.state is State.READY else "could not be opened"
            error = ContextPoisoned(f"{self.port.name}: the context {what}: {error}")
        if isinstance(error, ContextPoisoned):
            self.starts.lost(error, began=old is not None, ready=self.state is State.READY)
        decision = self.judge.loss(error, replaceable=self._starter.recovers or old is None)
        if isinstance(decision, Stop):
            self._stop(decision.error, Event.UNRECOVERABLE, decision.why, error)
            return
        if isinstance(error, Unrecoverable):  # for its ops it is a lost context like any other
            cause, error = error, ContextPoisoned(str(error), details=error.details)
            error.__cause__ = cause
        event = Event.BUDGET_SPENT if decision.pause else Event.CONTEXT_LOST
        self._fruitless = 0 if self.state is State.READY or error.starting else self._fruitless + 1
        lost, pid = self.port.generation, None if old is None else old.pid
        failed = self.port.lose(error, next_generation())
        self.residents.lost()
        self.own.lost()
        self.on_loss(error)
        self.port.losses += 1
        self._enter(event)
        self.log.lost(lost, failed, error, pid)
        self.ordinals.of(self.port.generation)
        self.events.publish(Lost(lost, error, failed, now))
        if event is Event.BUDGET_SPENT:
            self.timers.start_once("retry", StartDue(), decision.pause)
            return
        taken = self._take_over()
        if not self._fruitless:  # a further loss may come before this takeover is done
            self._standby.ensure()
        if taken:
            return
        delay = DELAYS[min(self._fruitless, len(DELAYS) - 1)]
        if delay:
            self.timers.start_once("retry", StartDue(), delay)
        else:
            self.ref.tell(StartDue())

    def interrupt(self, by: str = "a second Ctrl-C") -> None:
        """End the op that runs by a new context: nothing waits for it any more. Not counted as a loss."""
        if self.state is State.READY and self.port.in_flight:
            error = ContextPoisoned(f"{self.port.name}: the op that runs was ended by {by}")
            error.guarded = True
            self.give_up(error)

    def give_up(self, error: AccelError, why: str = "", cause: AccelError | None = None) -> None:
        """End the active host, whose context lives: it counts as lost with ``error``, or the device stops with it."""
        host = self.host
        if isinstance(error, DeviceStopped):
            self._dismiss()
            self._stop(error, Event.UNRECOVERABLE, why, cause)
        else:
            self._lose(error)
        if host is not None and self.isolated:
            host.kill("its supervisor gave it up")

    def _dismiss(self) -> Host | None:
        old, self.host = self.host, None
        if old is not None:
            self.fleet.dismiss(old)
        return old

    def _take_over(self) -> bool:
        """Let the standby take over; False if there is none."""
        spare = self._standby.take()
        self._owes_ready = spare is not None and not spare.is_open
        if spare is None:
            return False
        hot = spare.hot and spare.is_open
        self._took_over = "hot" if hot else "warm"
        self.starts.hold(spare.host)
        self._activate(spare.host, Activate(self.port.generation))
        if hot and not self.starts.suspected:  # its context exists: what follows is executed after the Activate
            self._publish_ready()
        return True

    def _stop(self, error: AccelError, event: Event, reason: str, loss: AccelError | None = None) -> None:
        if self._enter(event):
            self.error = error
            self.starts.end()
            now = self.clock()
            told = error if isinstance(error, Unrecoverable) else DeviceStopped(str(error))
            told.__cause__ = error.__cause__
            failed = self.port.stop(reason, self.on_stop(event, told, loss or error))
            self.residents.lost()
            self.on_loss(error)
            self.own.stop(error, reason)
            if event is not Event.STOP:
                self.log.error("%s has stopped, %d ops failed: %s", self.port.name, failed, str(error))
            self.watch_generation.close()
            if loss is not None:
                self.events.publish(Lost(self.port.generation, loss, failed, now))
            self.events.publish(Stopped(error, now))
            for spare in self._standby.stop():
                if event is not Event.STOP or not spare.is_ready:  # asked to close, it would first finish that
                    spare.host.kill("its device has stopped")
            self._wake_ready()

    # -- state ---------------------------------------------------------------------------------------------------------

    def _enter(self, event: Event) -> bool:
        state = after(self.state, event)
        if state is None or (state is State.STOPPED and self.state is State.STOPPED):
            return False
        self.state = state
        return True

    def _wake_ready(self) -> None:
        waiting, self._ready = self._ready, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def standby_state(self) -> str:
        """``"none"``, ``"starting"``, ``"ready"`` or ``"failed"``."""
        return self._standby.state

    @property
    def standbys_ready(self) -> int:
        """The number of standbys that are ready."""
        return self._standby.ready

    @property
    def standbys_wanted(self) -> int:
        """The number of standbys to be kept."""
        return standbys(self.config.standby)[1] if self._starter.isolated else 0
