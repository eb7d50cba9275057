"""``ContextActor``: owns an open device and serves what the application sends, on one admitting thread."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import msgspec

from callboard.core.backend import AccelBackend, AccelDevice, DeviceInfo
from callboard.core.errors import AccelError, ContextPoisoned
from callboard.device.config import HostConfig
from callboard.device.context.admission import Admission
from callboard.device.context.blocks import BlockPool
from callboard.device.context.completion import completion_for
from callboard.device.context.lending import Lending, Visit
from callboard.device.context.libraries import Libraries
from callboard.device.context.parking import Parking
from callboard.device.context.preparing import Helper
from callboard.device.context.stalls import Stalls
from callboard.device.context.streams import allocator_for
from callboard.device.context.trace import KernelTrace
from callboard.device.context.verdicts import Ledger
from callboard.device.failures import as_failure
from callboard.device.hosts.channel import Channel
from callboard.device.protocol import Answer, Ask, Calls, Flush, MapArena, Plain, Traces, UnmapArena

__all__ = ["ContextActor"]

GLANCES = 16
"""Looks at the streams before all else is looked at, too: 10 µs where a look takes no longer than on CUDA."""


class ContextActor:
    """A context, its libraries, and everything in flight on it.

    Raises:
        BackendUnavailable, OutOfMemory, DriverError: From the constructor: the device cannot be opened.
    """

    def __init__(self, channel: Channel, backend: AccelBackend, info: DeviceInfo, config: HostConfig) -> None:
        self._channel = channel
        self.config = config
        self.device: AccelDevice = backend.open(info)
        self.parking = Parking()
        self.ledger = Ledger()
        self.pool = BlockPool(self.device, config.memory_limit)
        self.streams = allocator_for(self.device, config)
        self.libraries = Libraries(self.device, backend.libraries(), self.streams, backend.name)
        self.helper = Helper(self.device.use, channel.busy, channel.wake)
        self.completion = completion_for(
            config.completion or backend.completion,
            config.spin,
            channel.wake,
            self.device.use,
            shared=channel.shared,
            looks=config.stall_after is not None,
        )
        self.stalls = None if config.stall_after is None else Stalls(config.stall_after)
        self._stalled = False
        self.admission = Admission(
            self.device,
            self.pool,
            self.libraries,
            self.ledger,
            self.parking,
            self.helper,
            lambda: channel.send(Flush()),
        )
        if config.trace:
            self.ledger.trace = KernelTrace()
        self.lending = Lending(self)
        self._asks: dict[str, Callable[[Any], Any]] = {
            "stats": self._stats,
            "flushed": self._flushed,
            "trim": self._trim,
            "probe": self._probe,
            "trace": self._trace,
        }

    def warm_up(self) -> None:
        """Make handles, workspaces and lazily loaded code of the configured libraries, as a hot standby does."""
        self.libraries.warm_up(self.config.warm)
        for track in self.streams.tracks:
            track.stream.synchronize()

    # -- one round of the admitting loop -------------------------------------------------------------------------------

    def receive(self, message: Plain) -> None:
        """Act on one message.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if type(message) is Calls:
            self.admission.calls(message.calls)
        elif isinstance(message, MapArena):
            address = self._channel.map_arena(message.arena, message.nbytes, message.address)
            self.device.register_host(address, message.nbytes)
            self.admission.arenas[message.arena] = (address, message.nbytes)
        elif isinstance(message, UnmapArena):
            address, _ = self.admission.arenas.pop(message.arena)
            self.device.unregister_host(address)
            self._channel.unmap_arena(message.arena)
        elif isinstance(message, Ask):
            self._answer(message)
        elif isinstance(message, Visit):
            self.lending.take(message)

    def glance(self) -> bool:
        """Look at the streams alone, :data:`GLANCES` times or until one has finished something; settle and report that.

        What ends is seen sooner so than by looking at everything each time. The context need not be current: streams
        and events are asked by their handles.

        Returns:
            Whether one has finished something.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        tracks = self.streams.tracks
        busy = [track for track in tracks if track.completed < track.issued]
        for _ in range(GLANCES):
            for track in busy:
                if track.poll():
                    if len(busy) > 1 or len(track.ops) != 1 or track.ops[0].check is not None:
                        self.device.use()  # a check may call its library
                    self.ledger.settle(tracks)
                    self.report()
                    return True
        return False

    def advance(self) -> bool:
        """Look at what is in flight, settle; True while ops are in flight or parked.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if self.helper.jobs:
            self.helper.finish()
        tracks = self.streams.tracks
        for track in tracks:
            if track.completed < track.issued:
                track.poll()
        flying = self.ledger.settle(tracks)
        if self.stalls is not None:
            self._find_stall(self.stalls)
        waiting = self.admission.sizing.advance()
        leaving = self.admission.plans.sweep()
        return self.lending.advance() or flying or waiting or leaving

    def _find_stall(self, stalls: Stalls) -> None:
        track = stalls.look(self.streams.tracks, time.monotonic())
        if track is not None:
            self._stalled = True
            head = track.ops[0].plan if track.ops else None  # a turn has none
            raise ContextPoisoned(
                f"stream {track.stream.id} has finished nothing for {stalls.limit:g} s (stall_after); "
                f"{'a call of a resident actor' if head is None else head.tag} is at its head"
            )

    def report(self) -> None:
        """Send the verdicts that are known."""
        verdicts = self.ledger.take()
        if verdicts is not None:
            self._channel.send(verdicts)
            trace = self.ledger.trace
            if trace is not None and (records := trace.take()):
                self._channel.send(Traces(records))

    def close(self) -> None:
        """Finish what is in flight and destroy the context."""
        self.helper.close()
        for track in self.streams.tracks:
            track.stream.synchronize()
        self.advance()
        self.report()
        self.lending.close()
        self.completion.close()
        self.admission.plans.close()
        for actor in self.libraries.actors.values():
            actor.close()
        self.admission.buffers.clear()
        self.pool.trim()
        for address, _ in self.admission.arenas.values():
            self.device.unregister_host(address)
        for track in self.streams.tracks:
            track.stream.close()
        self.device.close()

    def abandon(self) -> None:
        """End what can be ended of a dead context."""
        self.helper.close()
        self.completion.close()
        if self._stalled:
            return  # whoever touches it would wait for what never ends
        for end in (*(track.stream.close for track in self.streams.tracks), self.device.close):
            with contextlib.suppress(Exception):  # it is dead; each says so once more
                end()

    # -- control requests ----------------------------------------------------------------------------------------------

    def _answer(self, ask: Ask) -> None:
        handler = self._asks.get(ask.what)
        try:
            if handler is None:
                raise NotImplementedError(f"this context host does not know the request {ask.what!r}")
            argument = msgspec.msgpack.decode(ask.argument) if ask.argument else None
            self._channel.send(Answer(ask.id, msgspec.msgpack.encode(handler(argument))))
        except (AccelError, NotImplementedError, msgspec.DecodeError) as e:
            self._channel.send(Answer(ask.id, b"", as_failure(ask.id, e)))

    def _stats(self, _: Any) -> dict[str, Any]:
        free, total = self.device.memory_info()
        return {
            "free_bytes": free,
            "total_bytes": total,
            "used_bytes": self.pool.used,
            "cached_bytes": self.pool.cached,
            "buffers": len(self.admission.buffers),
            "in_flight": sum(len(t.ops) for t in self.streams.tracks),
            "parked": len(self.parking),
            "live_streams": len(self.streams.tracks),
            "library_restarts": {a.stem: a.restarts for a in self.libraries.actors.values()},
            "libraries": {stem: actor.library.detail for stem, actor in self.libraries.actors.items()},
            "plans": self.admission.plans.stats(),
            "compute_capability": list(self.device.info.compute_capability),
            "time": time.monotonic(),
        }

    def _flushed(self, _: Any) -> None:
        for block in list(self.pool.busy()):
            for track, ticket in [(block.writer, block.wrote), *block.readers.items()]:
                if track is not None and ticket > track.completed:
                    track.stream.synchronize()
        self.advance()
        self.pool.trim()
        self.device.trim()
        self.admission.memory_was_freed()

    def _trim(self, _: Any) -> None:
        self.pool.trim()
        self.device.trim()

    def _trace(self, install: Any) -> None:
        self.ledger.trace = KernelTrace() if install else None

    def _probe(self, _: Any) -> None:
        dead = self.device.probe()
        if dead is not None:
            raise dead
