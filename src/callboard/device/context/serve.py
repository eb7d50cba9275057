"""``serve``: the life of a context host, from the first message to the last."""

import time
from typing import TYPE_CHECKING

import msgspec

from callboard.core import registry
from callboard.core.backend import DeviceInfo
from callboard.core.errors import AccelError, ContextPoisoned, Unrecoverable
from callboard.device.config import HostConfig
from callboard.device.context.actor import ContextActor
from callboard.device.failures import as_failure
from callboard.device.hosts.channel import Channel, ChannelClosed
from callboard.device.protocol import (
    Activate,
    Call,
    Calls,
    Close,
    Closed,
    Lost,
    MapArena,
    Open,
    Plain,
    Ready,
    Room,
    StartActor,
    StopActor,
    Turn,
    Unknown,
    UnmapArena,
)
from callboard.device.wire import UnknownKind

if TYPE_CHECKING:
    from callboard.device.resident.hosted.actors import HostActors

__all__ = ["POISONED", "ContextHost", "serve"]

POISONED = 70
"""Exit code of a host that left because its context was dead."""


def serve(channel: Channel, *, lives_on: bool = False) -> int:
    """Serve until told to close, until the context dies, or until the application is gone.

    Args:
        channel: The line to the application.
        lives_on: The process goes on when this returns, so that threads and handles of a dead context must be ended
            here; a process of its own just leaves, for a driver may hold up whoever touches a dead context.

    Returns:
        The exit code: 0, or :data:`POISONED`.
    """
    host = ContextHost(channel)
    channel.open_to(host)
    try:
        return host.run()
    except ChannelClosed:
        host.abandon(lives_on)
        return 0
    except Exception as e:  # what nobody below has made of it is the end of this context
        host.lose(e)
        if lives_on:
            host.abandon(lives_on)
        return POISONED


class ContextHost:
    """What the messages of the application do to a context, from ``Open`` to ``Close``.

    Attributes:
        closing: ``Close`` has come; call :meth:`close`.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._context: ContextActor | None = None
        self._open: Open | None = None
        self._generation = 0
        self._early: list[Plain] = []  # arenas that were announced to a standby before it had a context
        self._residents: HostActors | None = None  # made with the first of them
        self.closing = False

    def run(self) -> int:
        """Receive and serve until closed; gives the exit code."""
        channel = self._channel
        timeout: float | None = None
        while not self.closing:
            channel.beat()
            for message in channel.receive(timeout):
                self.handle(message)
            timeout = self.advance()
            if timeout == 0:  # once more: a look at the line costs more than one at the device
                timeout = self.advance()
        self.close()
        return 0

    def use(self) -> None:
        """Make the context current on this thread, for a thread on which others may have made theirs."""
        if self._context is not None:
            self._context.device.use()

    def advance(self) -> float | None:
        """Look at what is in flight and report; gives the seconds to wait for messages, None: until woken."""
        context = self._context
        if context is None:
            self.look()
            return None
        context.completion.watch(context.streams.tracks)
        return context.completion.wait(self.look())

    def glance(self) -> bool:
        """As :meth:`look`, of somebody who does nothing else: a few times, at the streams alone.

        Returns:
            Whether one has finished something; what else is to be done then is left to the next look.
        """
        return self._context is not None and self._context.glance()

    def look(self) -> bool:
        """Look at what is in flight and report; True while something is."""
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
        return flying

    def close(self) -> None:
        """Finish what is in flight, destroy the context and say so."""
        if self._residents is not None:
            self._residents.close()
        if self._context is not None:
            self._context.close()
        self._channel.send(Closed())

    def abandon(self, lives_on: bool = False) -> None:
        """Nobody is served any more: let the resident actors' threads end by themselves.

        Args:
            lives_on: End the context's own threads, too, and destroy it as far as it lets itself be.
        """
        if self._residents is not None:
            self._residents.abandon()
        if lives_on and self._context is not None:
            self._context.abandon()

    def _resident(self) -> "HostActors":
        if self._residents is None:
            from callboard.device.resident.hosted.actors import HostActors

            self._residents = HostActors(self._channel)
            if self._generation and self._context is not None:
                self._residents.enter(self._context)
        return self._residents

    def lose(self, error: BaseException) -> None:
        """Say what is known, and that the context is dead."""
        self.abandon()
        if self._context is not None:
            self._context.report()
        if not isinstance(error, ContextPoisoned | Unrecoverable):
            lost = ContextPoisoned(f"the context host failed: {type(error).__name__}: {error}")
            lost.__cause__ = error
            error = lost if self._context is not None or not isinstance(error, AccelError) else error
        self._channel.send(Lost(self._generation, as_failure(0, error)))

    def admit(self, call: Call) -> None:
        """Act on a call, of a context that is open."""
        context = self._context
        assert context is not None
        context.device.use()
        context.admission.call(call)

    @property
    def welcome(self) -> bool:
        """Whether another thread may act for the admitting one while that waits: :meth:`visit` and :meth:`look`."""
        context = self._context
        return (
            context is not None
            and context.completion.visits
            and not context.helper.jobs  # what waits for them goes on where they are handed back
            and not context.parking.active
            and self._residents is None
            and not self.closing
        )

    def enter(self) -> None:
        """The thread of somebody else that calls this acts for the admitting one, up to :meth:`leave`."""
        assert self._context is not None
        self._context.device.enter()

    def leave(self) -> None:
        """End what :meth:`enter` began, on the same thread."""
        assert self._context is not None
        self._context.device.leave()

    def visit(self, call: Call) -> bool:
        """Launch a call if that takes no time to speak of: nothing has to be made or waited for first.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        assert self._context is not None
        return self._context.admission.at_once(call)

    def handle(self, message: Plain | UnknownKind) -> None:
        """Act on one message."""
        if type(message) is Calls and self._context is not None:  # nearly all messages
            self._context.receive(message)
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
            case Turn() | Room() | StartActor() | StopActor():
                self._resident().take(message)
            case _ if self._context is not None:
                self._context.receive(message)
            case MapArena() | UnmapArena():
                self._early.append(message)

    def _begin(self, message: Open) -> None:
        self._open = message
        if message.generation:  # somebody waits: what is not needed now is imported when it is
            self._activate(message.generation)
            return
        started = time.monotonic()
        self._channel.busy("import")
        info = msgspec.convert(message.device, DeviceInfo)
        registry.backend(info.backend).preload()
        self._channel.busy(None)
        if message.hot:
            self._activate(0)
            return
        self._channel.send(Ready(0, hot=False, seconds={"import": time.monotonic() - started}, extra={}))

    def _activate(self, generation: int) -> None:
        assert self._open is not None
        started = time.monotonic()
        self._generation = generation
        if self._context is None:
            self._channel.busy("open")
            info = msgspec.convert(self._open.device, DeviceInfo)
            config = msgspec.msgpack.decode(self._open.config, type=HostConfig)
            self._context = ContextActor(self._channel, registry.backend(info.backend), info, config)
            for early in self._early:
                self._context.receive(early)
            self._early.clear()
            if not generation:
                self._context.warm_up()
            self._channel.busy(None)
        if generation and self._residents is not None:
            self._residents.enter(self._context)
        extra = {"compute_capability": list(self._context.device.info.compute_capability)}
        self._channel.send(Ready(generation, hot=True, seconds={"open": time.monotonic() - started}, extra=extra))
