"""``serve``: the life of a context host, from the first message to the last."""

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from callboard.core import registry
from callboard.core.backend import DeviceInfo
from callboard.core.errors import AccelError, ContextPoisoned, Unrecoverable
from callboard.core.settings import convert
from callboard.device.config import HostConfig
from callboard.device.host.channel import Channel, ChannelClosed
from callboard.device.host.context.actor import ContextActor
from callboard.device.host.helm import Helm, new_helm
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import (
    Activate,
    ActorCall,
    Call,
    Calls,
    CancelCall,
    Close,
    Closed,
    ContextDied,
    DeviceRoom,
    MapArena,
    Open,
    Plain,
    ProtocolError,
    Ready,
    Release,
    Room,
    StartActor,
    StopActor,
    ToHost,
    Unknown,
    UnmapArena,
)
from callboard.device.protocol.wire import UnknownKind

if TYPE_CHECKING:
    from callboard.device.host.residents.actors import HostActors

__all__ = ["POISONED", "ContextHost", "serve"]

POISONED = 70
"""Exit code of a host that left because its context was dead."""

COPYING = 4
"""Factor of ``spin`` for the next call of an actor: its caller first copies a result and the next arguments."""

SLICE = 0.1
"""Seconds between two looks whether the resident actors have ended; each also wakes the host."""

NAP = 50e-6
"""Seconds between two polls of ops in flight while user code runs."""


def serve(channel: Channel, *, lives_on: bool = False) -> int:
    """Serve until closed, until the context dies, or until the application has ended.

    Args:
        channel: The line to the application.
        lives_on: The process continues after this returns, so the threads and handles of a dead context must be
            released here, when nothing runs in it any more: until then this does not return, and keeps the memory.
            A host process just exits: a driver may block calls that touch a dead context.

    Returns:
        The exit code: 0, or :data:`POISONED`.
    """
    host = ContextHost(channel, new_helm())
    channel.open_to(host)
    try:
        return host.run()
    except ChannelClosed:
        host.abandon(lives_on)
        return 0
    except Exception as e:  # not handled further down: it ends this context
        host.lose(e)
        host.abandon(lives_on)
        return POISONED
    finally:
        if host.helm is not None:
            host.helm.close()


class ContextHost:
    """Handles the application's messages for one context, from ``Open`` to ``Close``.

    Args:
        channel: The line to the application.
        helm: Lets the threads of resident actors serve; None if only one thread may.

    Attributes:
        closing: ``Close`` has been received; call :meth:`close`.
        flying: At the last poll, ops were in flight or other work was pending.
    """

    def __init__(self, channel: Channel, helm: Helm | None = None) -> None:
        self.helm = helm
        self._channel = channel
        self._timeout: float | None = None
        self.flying = False
        self._context: ContextActor | None = None
        self._open: Open | None = None
        self._generation = 0
        self._early: list[MapArena] = []  # arenas that were announced before the context existed
        self._residents: HostActors | None = None  # made for the first resident actor
        self._is_standby = False  # and has done what a standby of its kind does in advance
        self.closing = False

    def run(self) -> int:
        """Receive and handle messages until closed; returns the exit code."""
        helm = self.helm
        while not self.closing:
            terms = 0 if helm is None else helm.terms
            self.turn()
            if helm is not None and helm.terms != terms:
                helm.wait()
                self._channel.serve_here()
                self.use()
        self.close()
        return 0

    def turn(self, *, wait: bool = True) -> bool:
        """Receive and handle messages, poll, and hand calls to their actors. On the thread that serves.

        Args:
            wait: Wait for messages if there is nothing else to do.

        Returns:
            Whether ops were among the messages.

        Raises:
            ContextPoisoned, Unrecoverable, ChannelClosed, FrameError: The host ends.
        """
        return self.act_on(self.receive(wait=wait))

    def receive(self, *, wait: bool) -> Sequence[ToHost | UnknownKind]:
        """Messages that have come; ``wait`` and errors as of :meth:`turn`."""
        channel = self._channel
        channel.beat()
        return channel.receive(self._timeout if wait else 0)

    def act_on(self, messages: Sequence[ToHost | UnknownKind]) -> bool:
        """The message handling of :meth:`turn`; returns and raises the same."""
        for message in messages:
            self.handle(message)
        if messages and self._context is not None:
            self._context.completion.came()
        if self._residents is None or self.flying or not self._residents.all_ready(messages):
            self.settle()
        else:  # there is nothing to settle
            self._residents.dispatch()
        if self._residents is None:
            return False
        return any(type(m) is Calls and any(call.id for call in m.calls) for m in messages)

    def settle(self) -> None:
        """Poll, and hand calls to their actors, one of which may start to serve. On the thread that serves.

        Raises:
            ContextPoisoned, Unrecoverable: The host ends.
        """
        timeout = self.advance()
        if timeout == 0 and self.flying:  # once more: polling the socket costs more than polling the device
            timeout = self.advance()
        self._timeout = timeout
        self.dispatch()

    def dispatch(self) -> None:
        """Hand the calls that were admitted to their actors."""
        if self._residents is not None:
            self._residents.dispatch()

    @property
    def spins(self) -> float:
        """Seconds for which to poll for messages before waiting: the next call of an actor may follow at once."""
        return 0.0 if self._context is None or self.flying else COPYING * self._context.config.spin

    def use(self) -> None:
        """Make the context current on this thread, where other code may have made another one current."""
        if self._context is not None:
            self._context.device.use()

    def advance(self) -> float | None:
        """Poll and report; returns the seconds to wait for messages, None: until woken."""
        context = self._context
        if context is None:
            self.poll()
            return None
        context.completion.watch(context.streams.timelines)
        flying = self.flying = self.poll()
        timeout = context.completion.wait(flying)
        if timeout == 0 and self._residents is not None and self._residents.busy:
            # User code runs: a loop that polls in Python would keep the GIL from it.
            if not flying:
                return None
            time.sleep(NAP)
        return timeout

    def poll_streams(self) -> bool:
        """Poll streams only, a few times, for a caller that waits for one op.

        Returns:
            Whether a stream has completed an op.
        """
        return self._context is not None and self._context.poll_streams()

    def poll(self) -> bool:
        """Poll ops in flight and report completions; True while any are in flight."""
        context = self._context
        residents = self._residents
        if residents is not None:
            residents.advance()
        if context is None:
            return False
        flying = context.advance()
        if residents is not None and residents.settle():
            flying = context.advance()
        context.report()
        context.tell_memory()
        if residents is not None:
            residents.report()
            return flying or residents.waiting
        return flying

    @property
    def idle(self) -> bool:
        """True if all work is done, so that :meth:`close` need not wait; raises as :meth:`AccelStream.query`."""
        return self.actors_ended() and (self._context is None or self._context.idle)

    def close(self) -> None:
        """Finish the work in flight, destroy the context and send ``Closed``.

        Raises:
            ChannelClosed: The application does not wait for the work any longer. Call :meth:`abandon`.
        """
        while self._residents is not None and not self._residents.ended():
            self._channel.beat()
            self._channel.receive(SLICE)
            self._residents.advance()
        self._channel.run_exit_handlers()
        if self._context is not None:
            self._context.close()
        self._channel.send(Closed())

    def actors_ended(self) -> bool:
        """Tell the resident actors to end; True when all have. Does not wait."""
        return self._residents is None or self._residents.ended()

    def abandon(self, lives_on: bool = False) -> None:
        """Stop serving; let the resident actors' threads end by themselves.

        Args:
            lives_on: Also wait for these threads and the context's own, and destroy the context as far as the driver
                allows. None of them can be ended: the calling thread, which keeps the memory that they use, may never
                come back.
        """
        if self._residents is not None:
            self._residents.abandon()
        if not lives_on:
            return
        if self._context is not None:
            self._context.give_up()
        if self._residents is not None:
            self._residents.join()
        if self._context is not None:
            self._context.abandon()

    def _resident(self) -> "HostActors":
        if self._residents is None:
            from callboard.device.host.residents.actors import HostActors

            self._residents = HostActors(self._channel, self)
            if self._context is not None and self._generation:
                self._residents.enter(self._context)
            elif self._is_standby:
                self._residents.rehearsals.begin(self._context)
        return self._residents

    def lose(self, error: BaseException) -> None:
        """Report the known completions, and that the context is dead."""
        self.abandon()
        if self._context is not None:
            self._context.ledger.failures.clear()  # there is no library to make again
            self._context.report()
        if not isinstance(error, ContextPoisoned | Unrecoverable):
            lost = ContextPoisoned(f"the context host failed: {type(error).__name__}: {error}")
            lost.__cause__ = error
            error = lost if self._context is not None or not isinstance(error, AccelError) else error
        self._channel.send(ContextDied(self._generation, as_failure(0, error)))

    def admit(self, call: Call) -> None:
        """Admit a call; the context must be open."""
        context = self._context
        assert context is not None
        context.device.use()
        context.admission.call(call)

    @property
    def welcome(self) -> bool:
        """True if another thread may act in place of the admitting thread, while that thread waits."""
        context = self._context
        return (
            context is not None
            and not context.helper.jobs  # calls that wait for a job continue on the admitting thread
            and not context.parking.active
            and (self._residents is None or self._residents.quiet)
            and not self.closing
        )

    @property
    def polls(self) -> bool:
        """True if that thread may launch, and poll for what it has launched."""
        return self._context is not None and self._context.completion.inline

    def execute(self, call: Call) -> bool:
        """Do the short work of a call now, while nothing is in flight; returns whether that has been done.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        context = self._context
        assert context is not None
        timelines = context.streams.timelines
        for timeline in timelines:
            if timeline.completed < timeline.issued:
                return False
        if not context.admission.execute(call):
            return False
        if context.ledger.settle(timelines):  # it waits for something after all
            self._channel.wake()
        context.report()
        context.tell_memory()
        return True

    def enter(self) -> None:
        """Let the calling thread act for the admitting thread, until :meth:`leave`."""
        assert self._context is not None
        self._context.device.enter()

    def leave(self) -> None:
        """Undo :meth:`enter`, on the same thread."""
        assert self._context is not None
        self._context.device.leave()

    def launch_inline(self, call: Call) -> bool:
        """Launch a call now if that needs no compile, allocation or wait; returns whether it was launched.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        assert self._context is not None
        return self.polls and self._context.admission.at_once(call)

    def handle(self, message: Plain | UnknownKind) -> None:
        """Handle one message."""
        if type(message) is Calls and self._context is not None:  # nearly all messages
            self._context.receive(message)
            return
        if type(message) is ActorCall and self._residents is not None:  # nearly all others
            self._residents.call(message)
            return
        match message:
            case UnknownKind(kind):
                self._channel.send(Unknown(kind))
            case Open():
                self._begin(message)
            case Activate():
                self._activate(message.generation)
            case Close():
                self.closing = True
            case ActorCall() | CancelCall() | Room() | DeviceRoom() | Release() | StartActor() | StopActor():
                self._resident().take(message)
            case _ if self._context is not None:
                self._context.receive(message)
            case MapArena():
                self._early.append(message)
            case UnmapArena(arena):  # map and unmap it: its descriptor, once received, would keep the memory alive
                early = next((m for m in self._early if m.arena == arena), None)
                if early is None:
                    raise ProtocolError(f"arena {arena} is not mapped")
                self._early.remove(early)
                with contextlib.suppress(OSError):  # this process has no descriptor for it, and will not take it later
                    self._channel.map_arena(arena, early.nbytes, early.address)
                self._channel.unmap_arena(arena)
            case _:
                raise ProtocolError(f"{type(message).__name__} before a context is open")

    def _begin(self, message: Open) -> None:
        self._open = message
        if message.generation:  # ops are waiting: modules are imported when they are needed
            self._activate(message.generation)
            return
        started = time.monotonic()
        self._channel.busy("import")
        info = convert(message.device, DeviceInfo)
        registry.backend(info.backend).preload()
        self._channel.busy(None)
        if message.hot:
            self._activate(0)
            return
        self._stand_by(None)
        self._channel.send(Ready(0, hot=False, seconds={"import": time.monotonic() - started}, extra={}))

    def _stand_by(self, context: ContextActor | None) -> None:
        self._is_standby = True
        if self._residents is not None:
            self._residents.rehearsals.begin(context)

    def _activate(self, generation: int) -> None:
        assert self._open is not None
        started = time.monotonic()
        self._generation = generation
        if self._context is None:
            self._channel.busy("open")
            info = convert(self._open.device, DeviceInfo)
            config = convert(msgspec.msgpack.decode(self._open.config), HostConfig)
            self._context = ContextActor(self._channel, registry.backend(info.backend), info, config, self._open.asks)
            for early in self._early:
                self._context.receive(early)
            self._early.clear()
            if not generation:
                self._context.warm_up()
                self._stand_by(self._context)
            self._channel.busy(None)
        self._context.device.generation = generation
        if generation and self._residents is not None:
            self._residents.enter(self._context)
        extra = {"compute_capability": list(self._context.device.info.compute_capability)}
        self._channel.send(Ready(generation, hot=True, seconds={"open": time.monotonic() - started}, extra=extra))
