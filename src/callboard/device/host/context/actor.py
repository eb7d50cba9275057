"""``ContextActor``: owns an open device and handles the application's messages, on one admitting thread."""

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from callboard.core.backend import AccelBackend, AccelDevice, DeviceInfo
from callboard.core.errors import AccelError, ContextPoisoned, Unrecoverable
from callboard.device.config import HostConfig
from callboard.device.host.channel import Channel
from callboard.device.host.context.admission import Admission, Arenas
from callboard.device.host.context.admission.arrivals import Arrivals
from callboard.device.host.context.admission.attached import Attached
from callboard.device.host.context.admission.elsewhere import ExternalBlocks
from callboard.device.host.context.admission.shares import Shares
from callboard.device.host.context.blocks import BlockPool, MemoryWatch
from callboard.device.host.context.completion import completion_for
from callboard.device.host.context.ledger import MESSAGE_OPS, Ledger
from callboard.device.host.context.lending import Lending
from callboard.device.host.context.libraries import Libraries
from callboard.device.host.context.parking import Parking
from callboard.device.host.context.plans.plan import BRIEF
from callboard.device.host.context.preparing import Helper
from callboard.device.host.context.stalls import Stalls
from callboard.device.host.context.streams import streams_for
from callboard.device.host.context.trace import KernelTrace
from callboard.device.host.profiling.around import Around, Profiling
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.lending import LendingRequest
from callboard.device.protocol.messages import (
    Answer,
    Arrived,
    Ask,
    Calls,
    Decided,
    Expect,
    Flush,
    MapArena,
    MemoryUsage,
    Plain,
    Traces,
    UnmapArena,
)
from callboard.events.usage import usage

__all__ = ["ContextActor"]

SHORTEST_LOOK, LONGEST_LOOK = 50e-6, 0.01
"""Seconds between two looks whether the last work is done: the first, and the most."""

POLLS = 16
"""Polls of the streams in a row before everything else is checked as well: about 10 µs on CUDA."""


class ContextActor:
    """A context, its libraries, and everything in flight on it.

    Attributes:
        residents_busy: Returns the seconds that each resident actor has been in calls, by its id.
        residents_ran: Returns the seconds since a call of a resident actor began, by the call's id; 0: it has not.
        shares: Memory that other processes may have open.
        attached: Memory of other hosts that is open here.
        arrivals: Buffers that other devices send.

    Raises:
        BackendUnavailable, OutOfMemory, DriverError: From the constructor: the device cannot be opened.
    """

    def __init__(
        self,
        channel: Channel,
        backend: AccelBackend,
        info: DeviceInfo,
        config: HostConfig,
        asks: Collection[str] = (),
    ) -> None:
        self._channel = channel
        self.config = config
        self.device: AccelDevice = backend.open(info)
        try:
            self._make(channel, backend, config, asks)
        except BaseException:  # the process may live on, as with thread isolation
            self.device.close()
            raise

    def _make(self, channel: Channel, backend: AccelBackend, config: HostConfig, asks: Collection[str]) -> None:
        """The parts that work on the open device."""
        self.parking = Parking()
        self.ledger = Ledger()
        self.shares = Shares(self.device)
        self.pool = BlockPool(self.device, config.memory_limit)
        self.pool.release = self.shares.release
        self.elsewhere = ExternalBlocks(self.device, self.pool)
        self.streams = streams_for(self.device, config)
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
        self.admission = Admission(
            self.device,
            self.pool,
            self.elsewhere,
            self.libraries,
            self.streams,
            self.ledger,
            self.parking,
            self.helper,
            Arenas(channel, self.device, lambda: self._trim(None)),
            lambda: channel.send(Flush()),
            asks,
        )
        if channel.on_loop:
            self.admission.longest = BRIEF
        self._every = int(config.trace)
        self._around: Around | None = None
        self._install_trace()
        self.profiling = Profiling(self._profile)
        self.memory_watch: MemoryWatch | None = None
        self.lending = Lending(self)
        self.residents_busy: Callable[[], dict[int, float]] = dict
        self.residents_ran: Callable[[int], float] = lambda _: 0.0
        self.attached = Attached(self.device, self.admission.arenas)
        self.arrivals = Arrivals(self.admission.buffers, self.parking, self.attached)
        self._asks: dict[str, Callable[[Any], Any]] = {
            "detach": self.attached.close,
            "forget": self.shares.forget,
            "leaving": lambda _: self.shares.leaving(),
            "limit": self._limit,
            "memory": self._watch_memory,
            "pool": lambda _: self._pool_stats(),
            "stats": self._stats,
            "flushed": self._flushed,
            "trim": self._trim,
            "probe": self._probe,
            "ran": self._ran,
            "recording": self.admission.graphs.stats,
            "trace": self._trace,
            **self.profiling.asks,
        }

    def warm_up(self) -> None:
        """Create handles and workspaces and load the code of the configured libraries, as a hot standby does."""
        self.libraries.warm_up(self.config.warm)
        for timeline in self.streams.timelines:
            timeline.stream.synchronize()

    # -- one iteration of the admitting loop ---------------------------------------------------------------------------

    def receive(self, message: Plain) -> None:
        """Handle one message.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if type(message) is Calls:
            self.admission.calls(message.calls)
        elif isinstance(message, MapArena):
            self.admission.arenas.announce(message)
        elif isinstance(message, UnmapArena):
            self.admission.arenas.forget(message.arena)
        elif isinstance(message, Ask):
            self._answer(message)
        elif isinstance(message, Decided):
            self.admission.deciding.decided(message)
        elif isinstance(message, Expect):
            self.arrivals.expect(message)
        elif isinstance(message, Arrived):
            self.arrivals.arrived(message)
        elif isinstance(message, LendingRequest):
            self.lending.take(message)

    def poll_streams(self) -> bool:
        """Poll streams only, up to :data:`POLLS` times, until one has finished something; settle and report that.

        This detects a completion sooner than a full poll. The context need not be current: streams and events are
        queried by their handles.

        Returns:
            Whether a stream has completed an op.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        timelines = self.streams.timelines
        busy = [timeline for timeline in timelines if timeline.completed < timeline.issued]
        for _ in range(POLLS):
            for timeline in busy:
                if timeline.poll():
                    if len(busy) > 1 or len(timeline.ops) != 1 or timeline.ops[0].status is not None:
                        self.device.use()  # a check may call its library
                    self.ledger.settle(timelines)
                    self.report()
                    return True
        return False

    def advance(self) -> bool:
        """Poll all streams, settle finished ops, and advance parked work; True while ops are in flight or parked.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if self.helper.jobs:
            self.helper.finish()
        timelines = self.streams.timelines
        for timeline in timelines:
            if timeline.completed < timeline.issued:
                timeline.poll()
        arriving = self.arrivals.advance()
        flying = self.ledger.settle(timelines) or arriving
        if self.stalls is not None:
            self._find_stall(self.stalls)
        waiting = self.admission.sizing.advance()
        leaving = self.admission.plans.sweep()
        leaving = self.elsewhere.advance() or leaving
        return self.lending.advance() or flying or waiting or leaving

    def _find_stall(self, stalls: Stalls) -> None:
        timeline = stalls.poll(self.streams.timelines, time.monotonic())
        if timeline is not None:
            plan = timeline.ops[0].plan if timeline.ops else None  # None for a resident actor's call
            raise ContextPoisoned(
                f"stream {timeline.stream.id} has finished nothing for {stalls.limit:g} s (stall_after); "
                f"{'a call of a resident actor' if plan is None else plan.tag} is its oldest op"
            )

    def report(self) -> None:
        """Send the known completions, and then the questions about failures.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if self.ledger.failures:
            self.admission.refusing.at_end()
        messages = self.ledger.take()
        if messages:
            for completions in messages:
                self._channel.send(completions)
            trace = self.ledger.trace
            if trace is not None and (records := trace.take()):
                for at in range(0, len(records), MESSAGE_OPS):
                    self._channel.send(Traces(records[at : at + MESSAGE_OPS]))
        deciding = self.admission.deciding
        if deciding.questions:
            questions, deciding.questions = deciding.questions, []
            for question in questions:
                self._channel.send(question)

    def tell_memory(self) -> None:
        """Tell how much memory there is, if that is watched and the use of it has changed.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        watch = self.memory_watch
        if watch is not None and watch.changed(self.pool.used):
            self.device.use()
            free, total = self.device.memory_info()
            self._channel.send(MemoryUsage(free, total, self.pool.used, self.pool.cached))

    @property
    def idle(self) -> bool:
        """True if nothing that was enqueued here uses memory any more; raises as :meth:`AccelStream.query`."""
        return not self.helper.jobs and all(timeline.stream.query() for timeline in self.streams.timelines)

    def close(self) -> None:
        """Finish the work in flight and destroy the context.

        Raises:
            ChannelClosed: The application does not wait for the work any longer. Nothing has been destroyed.
        """
        self.helper.close()
        while not self.helper.join(LONGEST_LOOK):
            self._look_for_end(0)
        while True:
            self._finish_work()
            self.advance()
            self.report()
            if all(timeline.completed == timeline.issued for timeline in self.streams.timelines):
                break  # else ops that waited for these have been launched
        self.profiling.close()
        self.lending.close()
        self.arrivals.close()
        self.completion.close()
        self.admission.plans.close()
        for actor in self.libraries.actors.values():
            actor.close()
        self.elsewhere.close(list(self.admission.buffers.values()))
        self.admission.buffers.clear()
        self.pool.trim()
        self.admission.arenas.close()
        for timeline in self.streams.timelines:
            timeline.stream.close()
        self.device.close()

    def _finish_work(self) -> None:
        for timeline in self.streams.timelines:
            look = SHORTEST_LOOK
            while not timeline.stream.query():
                self._look_for_end(look)
                look = min(2 * look, LONGEST_LOOK)

    def _look_for_end(self, seconds: float) -> None:
        """The application has said its last, but may give this host up."""
        self._channel.beat()
        self._channel.receive(seconds)

    def give_up(self) -> None:
        """Drop what has not begun; the context is dead, or the application does not wait for it any longer."""
        self.profiling.close()
        self.helper.close()
        self.arrivals.close()
        self.completion.close()
        for timeline in self.streams.timelines:
            timeline.stream.give_up()

    def abandon(self) -> None:
        """Wait for the work that has begun, then release what of a dead context can still be released.

        The calling thread keeps the context, and with it the memory that this work uses, however long that takes.
        Until then it makes no driver call that would wait for work that may never end.
        """
        self.give_up()
        self.helper.join()
        for timeline in self.streams.timelines:
            with contextlib.suppress(Exception):  # the context is dead: nothing runs in it any more
                while not timeline.stream.query():
                    time.sleep(LONGEST_LOOK)
        for end in (*(timeline.stream.close for timeline in self.streams.timelines), self.device.close):
            with contextlib.suppress(Exception):  # likewise: each call raises that again
                end()

    # -- control requests ----------------------------------------------------------------------------------------------

    def _answer(self, ask: Ask) -> None:
        handler = self._asks.get(ask.what)
        try:
            if handler is None:
                raise NotImplementedError(f"this context host does not support the request {ask.what!r}")
            argument = msgspec.msgpack.decode(ask.argument) if ask.argument else None
            self._channel.send(Answer(ask.id, msgspec.msgpack.encode(handler(argument))))
        except (ContextPoisoned, Unrecoverable):  # found by the request
            raise
        except (AccelError, MemoryError, NotImplementedError, msgspec.DecodeError) as e:
            self._channel.send(Answer(ask.id, b"", as_failure(ask.id, e)))

    def _ran(self, call: int) -> float:
        return self.residents_ran(call)

    def _stats(self, _: Any) -> dict[str, Any]:
        free, total = self.device.memory_info()
        return {
            "free_bytes": free,
            "total_bytes": total,
            "used_bytes": self.pool.used,
            "cached_bytes": self.pool.cached,
            "buffers": len(self.admission.buffers),
            "allocations": self.pool.hits + self.pool.misses,
            "in_flight": sum(len(t.ops) for t in self.streams.timelines),
            "parked": len(self.parking),
            "live_streams": len(self.streams.timelines),
            "library_restarts": {a.lib: a.restarts for a in self.libraries.actors.values()},
            "libraries": {a.lib: a.library.detail for a in self.libraries.actors.values()},
            "plans": self.admission.plans.stats(),
            "compute_capability": list(self.device.info.compute_capability),
            "residents_busy": self.residents_busy(),
            "usage": usage(),
            "time": time.monotonic(),
        }

    def _flushed(self, _: Any) -> None:
        for block in list(self.pool.busy()):
            for timeline, seq in [(block.writer, block.wrote), *block.readers.items()]:
                if timeline is not None and seq > timeline.completed:
                    timeline.stream.synchronize()
        self.advance()
        self.pool.trim()
        self.device.trim()
        self.admission.memory_was_freed()

    def _trim(self, keep: int | None) -> None:
        self.elsewhere.advance(look=True)
        self.pool.trim(keep or 0)
        self.device.trim()

    def _limit(self, limit: int | None) -> None:
        self.pool.limit = limit
        if limit is not None and self.pool.used + self.pool.cached > limit:
            self.pool.trim(max(limit - self.pool.used, 0))

    def _pool_stats(self) -> dict[str, Any]:
        pool = self.pool
        free, total = self.device.memory_info()
        held = Counter(block.memory.nbytes for block in self.admission.buffers.values() if block.memory.nbytes)
        kept = pool.classes()
        return {
            "used_bytes": pool.used,
            "asked_bytes": pool.asked,
            "cached_bytes": pool.cached,
            "busy_bytes": sum(size * busy for size, (_, busy) in kept.items()),
            "peak_bytes": pool.most,
            "limit_bytes": pool.limit,
            "free_bytes": free,
            "total_bytes": total,
            "hits": pool.hits,
            "misses": pool.misses,
            "trimmed_bytes": pool.trimmed,
            "classes": [
                {"block_bytes": size, "in_use": held[size], "cached": kept.get(size, (0, 0))[0]}
                for size in sorted(held.keys() | kept.keys())
            ],
        }

    def _watch_memory(self, step: int | None) -> None:
        self.memory_watch = None if step is None else MemoryWatch(step)

    def _trace(self, every: Any) -> None:
        self._every = int(every or 0)
        self._install_trace()

    def _profile(self, around: Around | None) -> None:
        self._around = around
        self._install_trace()

    def _install_trace(self) -> None:
        trace = self.ledger.trace
        if not self._every and self._around is None:
            if trace is not None:
                trace.close()
            self.ledger.trace = None
            return
        if trace is None:
            make = functools.partial(self.device.event, timing=True, blocking=False, interprocess=False)
            trace = self.ledger.trace = KernelTrace(self._every, make)
        elif trace.every != self._every:
            trace.measure(self._every)
        trace.around = self._around

    def _probe(self, _: Any) -> None:
        """Find out whether the context is dead. Work in flight tells it itself, and is not waited for."""
        if any(timeline.completed < timeline.issued for timeline in self.streams.timelines):
            return
        dead = self.device.probe()
        if dead is not None:
            raise dead
