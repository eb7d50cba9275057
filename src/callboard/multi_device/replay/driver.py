"""``Replay``: feeds a journal to actors, one input after the other, and compares their outputs."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from callboard.actors._runtime.envelopes import Ask, Kill, Poison, Tick
from callboard.actors._runtime.recording import Tap
from callboard.actors.clock import ManualClock
from callboard.actors.refs import ActorRef
from callboard.multi_device.replay.codec import Codec, name_of
from callboard.multi_device.replay.comparing import DeviceScript
from callboard.multi_device.replay.devices import DEVICES
from callboard.multi_device.replay.entries import Gap, Input, Output, Recalled, Run, Snapshot
from callboard.multi_device.replay.report import Divergence, ReplayReport, Step
from callboard.multi_device.replay.stage import LiveOutput, ReplayTap, Script

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell
    from callboard.actors.props import Props
    from callboard.device.client.recorded import DeviceLog
    from callboard.multi_device.replay.entries import Entry
    from callboard.system import System

__all__ = ["BATCHES", "Build", "Replay"]

Build = Callable[["System"], object]
BATCHES = "batches/"
"""The prefix of the actor names of batch functions."""

LOOK = 0.01
"""Seconds after which a condition is checked again without a notification."""


class Replay:
    """A replay of one run. An async context manager; :meth:`step` and ``async for`` go through its inputs.

    The actors live in a system of their own, whose clock follows the journal. Messages between them are held back until
    the journal says that they were handled, so their order is that of the recording, whatever the loop does.

    Args:
        entries: Entries of one run, with their sequences.
        build: Makes the actors in the system that it is given, as the application did; may be ``async def``.
        make_codec: Makes a codec, given a function that resolves the paths of actors.
        attaches: Returns True if an actor was recorded.
        batches: Batch functions by their names.
        override: Messages in place of recorded ones, by sequence. Their consequences are followed: a message that
            differs from the recorded one only in its contents takes its place.
        snapshots: Begin at the last snapshot of each actor that has one.
        patience: Seconds to wait for an output; longer is a divergence.
        devices: Makes what compares the ops of devices, given the report.
        to_end: The entries are all of the run.
    """

    def __init__(
        self,
        entries: Sequence[tuple[int, "Entry"]],
        build: Build,
        make_codec: Callable[[Callable[[str], ActorRef[Any] | None]], Codec],
        attaches: Callable[[str, "Props[Any]", "Cell"], bool],
        *,
        batches: Mapping[str, Callable[[list[Any]], Any]],
        override: Mapping[int, Any],
        snapshots: bool,
        patience: float,
        devices: Callable[[ReplayReport], DeviceScript],
        to_end: bool,
    ) -> None:
        from callboard.system import System  # a replay gives `build` what an application has

        self.report = ReplayReport()
        self._devices: DeviceScript | None = devices(self.report)
        self._opened = 0
        self._to_end = to_end
        self._entries = entries
        self._build = build
        self._codec = make_codec(self._ref_of)
        self._attaches = attaches
        self._functions = batches
        self._override = override
        self._patience = patience
        self._next = 0
        self._taps: dict[str, ReplayTap] = {}
        self._changed = asyncio.Event()
        self._script = Script(self._codec, self._changed.set)
        self._starts: dict[str, tuple[int, Snapshot]] = {}
        self._batch_outputs: dict[tuple[str, int], LiveOutput] = {}
        self._texts: list[str] = []
        self._headless: set[str] = set()  # actors whose first inputs are not in this run of the journal
        inputs = [e for _, e in entries if isinstance(e, Input) and not e.actor.startswith(BATCHES)]
        name = inputs[0].actor.split("/")[1] if inputs else "replay"
        self._clock = ManualClock(inputs[0].time if inputs else 0.0)
        self.system = System(name, clock=self._clock, recorder=self)
        self._prepare(snapshots)
        if self._starts:
            self._devices = None  # their ops before the snapshots are not repeated

    def _prepare(self, snapshots: bool) -> None:
        made: dict[tuple[str, int], int] = {}
        if snapshots:
            self._starts = {e.actor: (n, e) for n, e in self._entries if isinstance(e, Snapshot)}
        for sequence, entry in self._entries:
            if isinstance(entry, Recalled) and not self._is_before(entry.actor, sequence):
                self._script.values.setdefault((entry.actor, entry.name), deque()).append(entry.value)
            elif isinstance(entry, Output):
                key = entry.actor, entry.number
                if entry.kind == "refused":
                    self._script.refused.add((*key, made.get(key, 0)))
                made[key] = made.get(key, 0) + 1

    def _is_before(self, actor: str, sequence: int) -> bool:
        start = self._starts.get(actor)
        return start is not None and sequence < start[0]

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.system.start()
        try:
            made = self._build(self.system)
            if isinstance(made, Awaitable):
                await made
            for actor, (_, snapshot) in self._starts.items():
                await self._restore(actor, snapshot)
        except BaseException:  # a cancel, too
            await self.system.stop(timeout=1.0)
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        for tap in self._taps.values():
            if tap.inbox is not None:
                tap.inbox.held.clear()
        if self._devices is not None:
            self._devices.complete = self._to_end and self._next >= len(self._entries) and not self.report.gap
        await self.system.stop(timeout=1.0)
        if self._devices is not None:
            self._devices.finish()
        self.report.divergences.sort(key=lambda each: each.sequence)

    def attach_device(self, name: str, backend: str, uuid: str) -> "DeviceLog | None":
        """Take a device of the replay's system; for the runtime."""
        self._opened += 1
        return None if self._devices is None else self._devices.attach(f"{DEVICES}{self._opened}", name, backend)

    def attach(self, path: str, props: "Props[Any]", cell: "Cell") -> Tap | None:
        """Take an actor of the replay's system; for the runtime."""
        if not self._attaches(path, props, cell):
            return None
        tap = self._taps[path] = ReplayTap(path, cell, self._script)
        self._changed.set()
        return tap

    def _ref_of(self, path: str) -> ActorRef[Any] | None:
        tap = self._taps.get(path)
        return None if tap is None else tap.cell.ref

    async def _restore(self, actor: str, snapshot: Snapshot) -> None:
        tap = self._taps.get(actor)
        if tap is None:
            return
        await self._until(lambda: tap.cell.started or tap.cell.closed)
        restore = getattr(tap.cell.actor, "restore", None)
        if restore is None:
            raise TypeError(f"{actor} has snapshots in the journal, and its actor has no method restore(state)")
        restore(self._codec.decode(snapshot.type, snapshot.value))
        tap.count = snapshot.number

    # -- going on ------------------------------------------------------------------------------------------------------

    async def step(self) -> Step | None:
        """Replay the next input and compare its outputs, up to the next input; None at the end."""
        before = len(self.report.divergences)
        given: tuple[int, Input, Any] | None = None
        self._texts = []
        while self._next < len(self._entries):
            sequence, entry = self._entries[self._next]
            if isinstance(entry, Input):
                if given is not None:
                    break
                message = await self._input(sequence, entry)
                if message is not _SKIPPED:
                    given = sequence, entry, message
            elif isinstance(entry, Output):
                await self._output(sequence, entry)
            elif isinstance(entry, Snapshot):
                await self._compare_state(sequence, entry)
            elif isinstance(entry, Gap):
                self.report.gap = f"record {sequence}: {entry.lost} records are missing here ({entry.reason})"
                self._next = len(self._entries)
                break
            elif isinstance(entry, Run):
                self._compare_environment(entry)
            self._next += 1
        if given is None:
            return None
        sequence, entry, message = given
        new = tuple(self.report.divergences[before:])
        return Step(sequence, entry.actor, entry.number, entry.kind, message, tuple(self._texts), new)

    async def __aiter__(self) -> AsyncIterator[Step]:
        while (step := await self.step()) is not None:
            yield step

    async def _input(self, sequence: int, entry: Input) -> Any:
        if self._is_before(entry.actor, sequence) or entry.actor in self._headless:
            return _SKIPPED
        if entry.actor.startswith(BATCHES):
            return await self._batch(sequence, entry)
        tap = await self._tap_of(entry.actor)
        if tap is None:
            self.report.skipped[entry.actor] = self.report.skipped.get(entry.actor, 0) + 1
            return _SKIPPED
        self._move_clock(entry.time)
        if not await self._until(lambda: _is_settled(tap)):
            self._differs(entry, sequence, f"input {entry.number}", "the one before is still handled")
            return None
        if tap.cell.closed or tap.inbox is None:
            self._differs(entry, sequence, f"input {entry.number}", "the actor has stopped")
            return None
        item = self._item(tap, sequence, entry)
        if item is None:
            return None
        if not tap.count and entry.number > 1 and not any(d.actor == entry.actor for d in self.report.divergences):
            self._headless.add(entry.actor)
            missing = f"inputs 1 to {entry.number - 1} of it are not in this run of the journal (discarded?)"
            self._differs(entry, sequence, f"input {entry.number}", f"{missing}; replay from a snapshot")
            return None
        self.report.inputs += 1
        tap.busy = True
        tap.inbox.give(item)
        tap.cell.wake()
        return getattr(item, "message", item)

    def _item(self, tap: ReplayTap, sequence: int, entry: Input) -> Any:
        """The item for the mailbox: a message sent in the replay, or one decoded from the record."""
        assert tap.inbox is not None
        if entry.kind == "timer":
            timers = tap.cell.timers._timers
            key = next((key for key, timer in timers.items() if timer.generation == entry.detail), _SKIPPED)
            if key is _SKIPPED:
                if entry.actor not in self._starts:  # a snapshot does not hold timers
                    self._differs(entry, sequence, f"a timer's {entry.type}", "no such timer is set")
                    return None
                return self._codec.decode(entry.type, entry.message, self._classes(tap))
            return Tick(key, entry.detail, timers[key].message)
        item = tap.inbox.take(entry.kind, entry.type, entry.message, bool(self._override))
        if sequence in self._override:
            message = self._override[sequence]
            if isinstance(item, Ask):
                item.message = message
                return item
            return self._asked(tap, message) if entry.kind == "ask" else message
        if item is not None:
            return item
        if entry.kind in ("poison", "kill"):
            return Poison() if entry.kind == "poison" else Kill()
        message = self._codec.decode(entry.type, entry.message, self._classes(tap))
        return self._asked(tap, message) if entry.kind == "ask" else message

    def _asked(self, tap: ReplayTap, message: Any) -> Ask:
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        return Ask(message, future, tap.cell.port, tap.cell, None, 0.0)

    def _classes(self, tap: ReplayTap) -> list[type]:
        return list(tap.cell.dispatch.table)

    async def _tap_of(self, actor: str) -> ReplayTap | None:
        def found() -> bool:
            return actor in self._taps or not any(tap.busy for tap in self._taps.values())

        await self._until(found)
        return self._taps.get(actor)

    # -- comparing -----------------------------------------------------------------------------------------------------

    async def _output(self, sequence: int, entry: Output) -> None:
        start = self._starts.get(entry.actor)
        if (start is not None and entry.number <= start[1].number) or entry.actor in self._headless:
            return
        if entry.actor.startswith(BATCHES):
            live = self._batch_outputs.pop((entry.actor, entry.number), None)
            if live is None:
                return
        else:
            tap = self._taps.get(entry.actor)
            if tap is None:
                return
            self._move_clock(entry.time)
            there = await self._until(lambda: bool(tap.outputs.get(entry.number)) or entry.number in tap.finished)
            if not tap.outputs.get(entry.number):
                nothing = "nothing more" if there else f"nothing within {self._patience:g} s"
                self._differs(entry, sequence, self._recorded(entry), nothing)
                return
            live = tap.outputs[entry.number].popleft()
            if not tap.outputs[entry.number]:
                del tap.outputs[entry.number]
        self.report.outputs += 1
        self._texts.append(f"{entry.actor}: {self._text(*live[:4])}")
        same = live[:3] == (entry.kind, entry.to, entry.type)
        if not same or (entry.value and live[3] != entry.value):
            self._differs(entry, sequence, self._recorded(entry), self._text(*live[:4]))

    def _recorded(self, entry: Output) -> str:
        return self._text(entry.kind, entry.to, entry.type, entry.value)

    def _text(self, kind: str, to: str, name: str, data: bytes) -> str:
        value = self._codec.show(name, data)
        return f"{kind} {value}" if not to else f"{kind} {value} to {to}"

    async def _compare_state(self, sequence: int, entry: Snapshot) -> None:
        tap = self._taps.get(entry.actor)
        if tap is None or self._is_before(entry.actor, sequence):
            return
        # An actor that is restarted waits for its children first, and has the old instance until then.
        if not await self._until(lambda: _is_settled(tap)):
            return  # the next input reports it
        take = getattr(tap.cell.actor, "snapshot", None)
        if take is None or tap.cell.closed or tap.count != entry.number:
            return
        state = take()
        if name_of(type(state)) != entry.type or self._codec.encode(state) != entry.value:
            recorded, now = (self._codec.show(entry.type, v) for v in (entry.value, self._codec.encode(state)))
            at = Output(entry.actor, entry.number, "state", "", entry.type, b"", 0.0)
            self._differs(at, sequence, f"state {recorded}", f"state {now}")

    def _compare_environment(self, entry: Run) -> None:
        from callboard.multi_device.replay.entries import this_run

        now = this_run().environment
        self.report.environment = [
            f"{what} was {was} and is {now.get(what)}"
            for what, was in entry.environment.items()
            if was != now.get(what)
        ]

    def _differs(self, entry: Input | Output, sequence: int, expected: str, got: str) -> None:
        self.report.divergences.append(Divergence(entry.actor, entry.number, sequence, expected, got))

    # -- batches -------------------------------------------------------------------------------------------------------

    async def _batch(self, sequence: int, entry: Input) -> Any:
        function = self._functions.get(entry.actor.removeprefix(BATCHES))
        if function is None:
            self.report.skipped[entry.actor] = self.report.skipped.get(entry.actor, 0) + 1
            return _SKIPPED
        if sequence in self._override:
            items = self._override[sequence]
        else:
            items = self._codec.decode(entry.type, entry.message)
        self.report.inputs += 1
        kind = "reply"
        try:
            value = function(items)
            if isinstance(value, Awaitable):
                value = await asyncio.wait_for(value, self._patience)
        except Exception as e:  # of any class: it is compared
            kind, value = "error", e
        self._batch_outputs[entry.actor, entry.number] = (kind, "", *self._codec.output(value), value)
        return items

    # -- time ----------------------------------------------------------------------------------------------------------

    def _move_clock(self, to: float) -> None:
        ahead = to - self._clock.time()
        if ahead > 0:
            self._clock.advance(ahead)

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait until the actors have got there; False if they have not within the patience."""
        if condition():
            return True
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._patience):
                while not condition():
                    self._changed.clear()
                    look = loop.call_later(LOOK, self._changed.set)  # the start of an actor is not reported
                    await self._changed.wait()
                    look.cancel()
        except TimeoutError:
            return False
        return True


_SKIPPED = object()


def _is_settled(tap: ReplayTap) -> bool:
    """True if an actor has handled all its input, including a restart; or has stopped."""
    cell = tap.cell
    return cell.closed or (not tap.busy and cell.started and not cell.suspended)


def _retrieve(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()  # it is in the outputs
