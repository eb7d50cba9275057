"""``Run``: interprets a program of calls, cancels, failures, stops and kills, and checks it against a model.

What a call did is known afterwards from its reply and from the actors' log. The model replays what was called on each
array, in the order of calling: a call that ran has written; one that failed has spoilt the array for those behind it.
"""

import asyncio
import contextlib
import gc
import os
import signal
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any
from unittest import mock

from tests.device.residents.lab import Gate
from tests.device.residents.recorder import Record, Recorder, given
from tests.device.residents.uses import Array, Call, Use

import callboard as cb
from callboard.actors.errors import ActorStopped
from callboard.device.client.residents.caller import Caller

__all__ = ["BOUND", "Run", "run"]

BOUND = 20.0
"""Seconds within which everything ends."""


class Living:
    """One of the actors, and what has happened to it."""

    def __init__(self, ref: "cb.ResidentRef[Recorder]", title: str) -> None:
        self.ref = ref
        self.title = title
        self.gates: list[Gate] = []
        self.calls: list[Call] = []


class Run:
    """One program on a device.

    Args:
        dev: Nothing else uses it.
        folder: Where gates and the log are.
        apart: Actors that get a process of their own.
    """

    def __init__(self, dev: cb.Device, folder: Path, apart: Collection[str] = ()) -> None:
        self.dev = dev
        self.apart = apart
        self.folder = folder
        self.record = Record(folder / "log")
        self.numbers = 0
        self.killed = False
        self.calls: list[Call] = []
        self.uses: list[Use] = []
        self.closing: list[asyncio.Task[Any]] = []
        self.arrays = [Array(dev, k) for k in range(2)]
        self.past: list[Array] = []
        self.actors = [self._started(name) for name in ("one", "two")]

    def _started(self, name: str) -> Living:
        title = f"{name}-{self._number()}"
        props = cb.Props(Recorder, str(self.record.path), title)
        return Living(self.dev.actor_of(props, name=name, own_process=name in self.apart), title)

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    async def step(self, kind: str, *arguments: Any) -> None:
        """Do one step of the program."""
        done = getattr(self, f"do_{kind}")(*arguments)
        if done is not None:
            await done

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, at: int, method: Any, *arguments: Any, array: int | None = None, late: bool = False) -> Call | None:
        """Call a method of an actor; None where that is refused, as it should be."""
        actor, number = self.actors[at], self._number()
        used = None if array is None else self.arrays[array]
        call = Call(number, method.__name__, arguments, used, self.killed)
        ref = actor.ref.with_timeout(1e-9) if late else actor.ref
        call.late = late
        given = arguments if used is None else (*arguments, used.ref)
        try:
            call.reply = ref.call(method, number, *given)
        except ActorStopped:
            assert actor.ref.is_stopped
            return None
        except cb.GpuRefStale:
            assert self.killed
            assert array is not None
            self.past.append(self.arrays[array])
            self.arrays[array] = Array(self.dev, number)
            return None
        except cb.MailboxFull:
            assert actor.ref.in_flight >= Recorder.max_in_flight
            return None
        self.calls.append(call)
        actor.calls.append(call)
        if used is not None:
            used.entries.append(call)
        return call

    def do_short(self, at: int) -> None:
        self._call(at, Recorder.short)

    async def do_calls(self, at: int, n: int) -> None:
        """One after the other, so that the actor may serve the host."""
        for _ in range(n):
            call = self._call(at, Recorder.short)
            if call is not None and not any(actor.gates for actor in self.actors):
                await call.end(BOUND)

    async def do_block(self, at: int, array: int | None, reached: bool) -> None:
        gate = Gate(self.folder / f"gate{self._number()}")
        self.actors[at].gates.append(gate)
        call = self._call(at, Recorder.blocked, gate.path, array=array)
        if call is not None and reached and sum(len(actor.gates) for actor in self.actors) == 1:
            async with asyncio.timeout(BOUND):
                while not call.reply.done() and call.number not in self.record.numbers("ran"):
                    await self._met()

    def do_array(self, at: int, size: int) -> None:
        self._call(at, Recorder.array, given(self.numbers + 1, size))

    def do_keep(self, at: int, size: int) -> None:
        self._call(at, Recorder.keep, given(self.numbers + 1, size))

    def do_write(self, at: int, array: int) -> None:
        self._call(at, Recorder.write, array=array)

    def do_computed(self, at: int, array: int) -> None:
        self._call(at, Recorder.computed, array=array)

    def do_fail(self, at: int, how: str, array: int | None) -> None:
        self._call(at, Recorder.fail, how, array=array)

    def do_late(self, at: int, size: int, array: int | None) -> None:
        """A call whose time is over before it begins."""
        if array is not None:
            self._call(at, Recorder.write, array=array, late=True)
        elif size:
            self._call(at, Recorder.array, given(self.numbers + 1, size), late=True)
        else:
            self._call(at, Recorder.short, late=True)

    def do_fill(self, array: int, value: int) -> None:
        with self._may_be_stale(array):
            self.arrays[array].fill(value)

    def do_read(self, array: int) -> None:
        with self._may_be_stale(array):
            self.arrays[array].read()

    @contextlib.contextmanager
    def _may_be_stale(self, array: int) -> Any:
        try:
            yield
        except cb.GpuRefStale:
            assert self.killed
            self.past.append(self.arrays[array])
            self.arrays[array] = Array(self.dev, self._number())

    def _pending(self, back: int) -> Call | None:
        pending = [call for call in self.calls if not call.reply.done()]
        return pending[-1 - back % len(pending)] if pending else None

    def do_cancel(self, back: int) -> None:
        call = self._pending(back)
        if call is not None:
            call.cancelled = True
            call.reply.cancel()  # the host may answer at once

    def do_expire(self, back: int) -> None:
        """The time limit of a call passes."""
        call = self._pending(back)
        flying = [] if call is None else [c.flying[call.reply._op] for c in self._callers if call.reply._op in c.flying]
        end = flying[0] if flying else None
        if call is not None and end is not None:
            call.expired = True
            end.expire(5.0, "expired")
            assert call.reply.done()

    # -- streams -------------------------------------------------------------------------------------------------------

    def do_stream(self, at: int, n: int, size: int, prefetch: int) -> None:
        actor, number = self.actors[at], self._number()
        try:
            stream = actor.ref.stream(Recorder.items, number, n, size).with_prefetch(prefetch)
        except ActorStopped:
            assert actor.ref.is_stopped
        except cb.MailboxFull:
            assert actor.ref.in_flight >= Recorder.max_in_flight
        else:
            self.uses.append(Use(stream, number, n, size, actor.calls))

    async def do_take(self, back: int, n: int) -> None:
        if self.uses:
            self.uses[-1 - back % len(self.uses)].take(n)
            await asyncio.sleep(0)

    async def do_leave(self, back: int, how: str) -> None:
        use = self.uses[-1 - back % len(self.uses)] if self.uses else None
        if use is None or use.stream is None:
            return
        use.left = True
        if use.busy:
            await use.cancel(BOUND)
        elif how == "close":
            self.closing.append(asyncio.ensure_future(use.stream.aclose()))
        use.stream = None

    # -- actors and hosts ----------------------------------------------------------------------------------------------

    def do_open(self) -> None:
        """The first gate that is closed."""
        gates = next((actor.gates for actor in self.actors if actor.gates), None)
        if gates:
            gates.pop(0).open_for_good()

    async def do_meet(self) -> None:
        """The host has received what was sent."""
        await self._met()

    async def _met(self) -> None:
        async with asyncio.timeout(BOUND):
            try:
                await self.dev.stats()
            except cb.ContextLost:
                assert self.killed

    def do_stop(self, at: int) -> None:
        for call in self.actors[at].calls:
            call.stopped = call.stopped or not call.reply.done()
        self.actors[at].ref.stop()

    async def do_again(self, at: int) -> None:
        """Stop an actor and start another under its name."""
        await self._end(at)
        self.actors[at] = self._started(self.actors[at].ref.name)

    async def _end(self, at: int) -> None:
        self.do_stop(at)
        while self.actors[at].gates:
            self.actors[at].gates.pop().open_for_good()
        await self.actors[at].ref.stop_and_wait(timeout=BOUND)

    async def do_kill(self, wait: bool) -> None:
        pid = self.dev.health().host_pid
        if pid in (None, os.getpid()) or self.dev.health().state != "ready":
            return
        assert pid is not None
        generation = self.dev.watch_generation()
        since = generation.value
        self.killed = True
        for call in self.calls:
            call.killed = call.killed or not call.reply.done()
        os.kill(pid, signal.SIGKILL)
        if wait:
            async with asyncio.timeout(BOUND):
                await generation.changed(since)
                await self.dev.ready()

    async def do_finish(self) -> None:
        """Open all gates and wait for all calls."""
        for actor in self.actors:
            while actor.gates:
                actor.gates.pop().open_for_good()
        for call in self.calls:
            await call.end(BOUND)

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def _callers(self) -> list[Caller]:
        return [self.dev._actor.residents.caller, *(actor.ref._residents.caller for actor in self.actors)]

    async def close(self) -> None:
        """Let everything end, and see that nothing is left."""
        await self.do_finish()
        for use in self.uses:
            await use.end(BOUND)
            use.stream = None
        async with asyncio.timeout(BOUND):
            for done in await asyncio.gather(*self.closing, return_exceptions=True):
                assert done is None, f"a stream was closed with {done!r}"
            await self.dev.ready()
            for array in (0, 1, 0, 1):  # once more, for one that was stale
                self.do_read(array)
            for array in (*self.past, *self.arrays):
                await array.end()
            for at, actor in enumerate(self.actors):
                while actor.ref.in_flight:
                    await self.dev.stats()
                await self._end(at)
            while (await self.dev.stats()).staged_bytes:
                gc.collect()
            await self.dev.drain()
        for caller in self._callers:
            assert not caller.flying
            assert not caller._staged
            assert not caller.loans

    def check(self) -> None:
        """What the replies and the log say fits the model."""
        self.record.check_order()
        if not self.killed:
            self.record.check_closed()
        ran = self.record.numbers("ran")
        for array in (*self.past, *self.arrays):
            array.replay(ran)
        for call in self.calls:
            call.check(call.number in ran)
        for use in self.uses:
            use.check(self.killed, ran)


async def run(program: list[tuple[Any, ...]], dev: cb.Device, folder: Path, apart: Collection[str] = ()) -> None:
    """Run a program on a device, and check it."""
    ends: Counter[int] = Counter()
    ended = Caller.ended

    def once(self: Caller, end: Any, failed: bool = False) -> None:
        ends[end.id] += 1
        ended(self, end, failed)

    with mock.patch.object(Caller, "ended", once):
        one = Run(dev, folder, apart)
        try:
            for step in program:
                await one.step(*step)
            await one.close()
        finally:
            for actor in one.actors:
                for gate in actor.gates:
                    gate.open_for_good()
    one.check()
    assert set(ends.values()) <= {1}, f"ended more than once: {ends}"
