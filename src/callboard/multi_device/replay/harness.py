"""``ReplayHarness``: records inputs that an application cannot repeat, and repeats them."""

import asyncio
import contextlib
import fnmatch
import functools
import itertools
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from callboard.actors._runtime.recording import Tap, tap_of_actor
from callboard.actors.clock import Clock, LoopClock
from callboard.actors.refs import ActorRef
from callboard.core.ref import GpuRef, GpuToken
from callboard.multi_device.placement.hints import Candidate, PlacementHints
from callboard.multi_device.placement.policies import Chooser, PlacementPolicy, chooser_of
from callboard.multi_device.replay.codec import Codec
from callboard.multi_device.replay.comparing import DeviceScript
from callboard.multi_device.replay.devices import DEVICES, DeviceRecorder
from callboard.multi_device.replay.driver import BATCHES, Build, Replay
from callboard.multi_device.replay.entries import DeviceOpened, Entry, Input, Recalled, encode, this_run
from callboard.multi_device.replay.errors import JournalFailed
from callboard.multi_device.replay.journals.memory import MemoryJournal
from callboard.multi_device.replay.journals.protocol import Journal, checked_journal
from callboard.multi_device.replay.plain import checked_tolerances
from callboard.multi_device.replay.reading import read_entries, run_of
from callboard.multi_device.replay.recorder import EntryWriter, RecordingTap, recorded_batches
from callboard.multi_device.replay.report import ReplayReport
from callboard.multi_device.replay.stage import Script
from callboard.multi_device.replay.writer import JournalStats, JournalWriter, OnFailure

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell
    from callboard.actors.props import Props
    from callboard.device.client.recorded import DeviceLog

__all__ = ["ReplayHarness", "ReplayMode"]

T = TypeVar("T")
OURS = "callboard."
DEVICE_ACTORS = "callboard.device.opening"


class ReplayMode(StrEnum):
    """The mode of a harness. Members equal their texts."""

    OFF = "off"
    """Recording is off: recorded functions are only called."""
    RECORD = "record"
    """It records."""
    REPLAY = "replay"
    """Recalled values come from the recording."""


class ReplayHarness:
    """Records the inputs of actors and batch functions to a journal, and replays them.

    ::

        harness = cb.ReplayHarness.with_journal("record", cb.FileJournal("journal"), "shop")
        async with harness, cb.System("shop", recorder=harness) as system:
            ...


        async def build(system: cb.ActorSystem) -> None:
            system.actor_of(cb.Props(Counter), "counter")


        report = await harness.verify(build)

    These are recorded automatically: each message that an actor handles, in the order of its mailbox, including those
    of its timers and of the actors that it watches; and each reply, exception and message of the handler. All other
    values that an actor takes from outside must come through the harness: :meth:`recall`, :meth:`seed`, :meth:`rng`,
    :meth:`now`, :meth:`chooser`, :meth:`batches`.

    Args:
        mode: A :class:`ReplayMode`.
        journal: Journal to record to; in memory by default.
        persistence_id: Id of the sequence of records in the journal.
        actors: Patterns of paths (as in file names): which actors are recorded, and which devices: ``devices/1`` is the
            first that the system opens. None: all but callboard's own actors.
        on_failure: Policy when the journal fails: ``"fail"`` refuses each message that would have been recorded with
            :class:`JournalFailed`. ``"degrade"`` continues without recording, counts and reports the loss in the log
            and to ``told``, and records again when the journal works. A message that cannot be recorded is refused with
            :class:`NotRecordable`, or recorded by its class only.
        told: Called with the failure of the journal, and with None at its end; on a thread of the harness.
        snapshot_every: Number of inputs between two snapshots by ``actor.snapshot()``, for actors that have that
            method. It returns plain data or a Struct, for ``restore(state)``.
        redact: Called with each message and output; returns the value to record in its place.
        types: Classes by ``module:qualname``, for a replay: those that were renamed, or are made in functions.
        resolve_ref: Makes a live ref of the token of a recorded one; arrays on devices are not recorded.
        max_array_bytes: Host arrays above that are recorded by their digest only.
        result_bytes: Results of a device's ops up to that are read back after each op and recorded; larger ones when
            the application reads them.
        tolerances: Differences of results of devices that a replay allows, by dtype (``{"f32": 1e-3}``), relative to
            the largest element; in place of those of :data:`callboard.multi_device.replay.plain.TOLERANCES`.
        linger: Seconds to gather records for one write. A process that is killed loses what it recorded in the last
            ``linger`` seconds, 50 ms, and in the write under way, so that the journal ends before the process did; what
            was :meth:`committed` is there. 0 writes at once, and costs a write for each record that comes alone.
        max_pending: Records that wait to be written at most; beyond that callers are held, and after 2 s the journal
            has failed.
        retry: Seconds between attempts to use a failed journal again, with ``degrade``.
        clock: Tells the time, for :meth:`now`.
    """

    def __init__(
        self,
        mode: ReplayMode | str = ReplayMode.RECORD,
        journal: Journal | None = None,
        persistence_id: str = "callboard",
        *,
        actors: Sequence[str] | None = None,
        on_failure: OnFailure = "fail",
        told: Callable[[JournalFailed | None], object] | None = None,
        snapshot_every: int | None = None,
        redact: Callable[[Any], Any] | None = None,
        types: Mapping[str, type] | None = None,
        resolve_ref: Callable[[GpuToken], GpuRef] | None = None,
        max_array_bytes: int = 64 << 20,
        result_bytes: int = 64 << 10,
        tolerances: Mapping[str, float] | None = None,
        linger: float = 0.05,
        max_pending: int = 1 << 18,
        retry: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self.mode = _mode(mode)
        if snapshot_every is not None and snapshot_every < 1:
            raise ValueError(f"snapshot_every is {snapshot_every}; it is at least 1, or None")
        if isinstance(actors, str):
            raise TypeError(f"actors is {actors!r}; pass a list of patterns, [{actors!r}]")
        self._journal = MemoryJournal() if journal is None else checked_journal(journal)
        self._clock = LoopClock() if clock is None else clock
        self._patterns = None if actors is None else list(actors)
        self._strict = on_failure == "fail"
        self._every = snapshot_every
        self._make_codec = functools.partial(
            Codec, types=types, max_array_bytes=max_array_bytes, resolve_ref=resolve_ref, redact=redact
        )
        self._writer = JournalWriter(
            self._journal,
            persistence_id,
            on_failure=on_failure,
            linger=linger,
            max_pending=max_pending,
            retry=retry,
            told=told,
        )
        self._codec = self._make_codec()
        self._entry_writer = EntryWriter(self._writer, self._codec, self._clock, self._strict)
        self._script = Script(self._codec, lambda: None)
        self._numbers: dict[str, Iterator[int]] = {}
        self._open = False
        self._tolerances = checked_tolerances(tolerances or {})
        self._redact = redact
        self._arrays = max_array_bytes, result_bytes
        self._known: dict[str, None] = {}
        self._devices = 0
        self._devices_script: DeviceScript | None = None

    @classmethod
    def with_journal(
        cls, mode: ReplayMode | str, journal: Journal, persistence_id: str = "callboard", **options: Any
    ) -> Self:
        """A harness over a journal that outlives the process."""
        return cls(mode, journal, persistence_id, **options)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Open the journal; ``async with`` does this.

        Raises:
            JournalCorrupt, JournalConflict: It is damaged, or another writer has it.
            Exception: Raised by the journal.
        """
        if self._open:
            raise RuntimeError("the harness was started before")
        await asyncio.to_thread(self._writer.start)
        self._open = True
        if self.mode is ReplayMode.RECORD:
            self._writer.put(encode(this_run()))
        elif self.mode is ReplayMode.REPLAY:
            found = await asyncio.to_thread(self._last_run)
            for _, entry in found:
                if isinstance(entry, Recalled):
                    self._script.values.setdefault((entry.actor, entry.name), deque()).append(entry.value)
            self._devices_script = DeviceScript(found, ReplayReport(), self._tolerances, self._redact)
        return self

    async def stop(self) -> None:
        """Make the records durable, and close the journal; does nothing the second time.

        Raises:
            JournalFailed: It could not be written, with ``on_failure="fail"``.
        """
        if self._open:
            self._open = False
            await asyncio.to_thread(self._writer.close)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        except JournalFailed:
            if error is None:
                raise

    async def committed(self, timeout: float | None = 30.0) -> None:
        """Wait until all that was recorded before is durable.

        Raises:
            JournalFailed: It could not be written, with ``on_failure="fail"``.
            TimeoutError
        """
        await self._writer.committed(timeout)

    @property
    def stats(self) -> JournalStats:
        """Figures of the recording."""
        return self._writer.stats

    # -- recording -----------------------------------------------------------------------------------------------------

    def attach(self, path: str, props: "Props[Any]", cell: "Cell") -> Tap | None:
        """Take a new actor of a system that was given this harness as its ``recorder``; for the runtime."""
        if self.mode is not ReplayMode.RECORD or not self._attaches(path, props, cell):
            return None
        if not self._open:
            raise RuntimeError("the harness is not started: enter it before the system, 'async with harness, system'")
        return RecordingTap(
            path, cell, EntryWriter(self._writer, self._codec, cell.port.clock, self._strict), self._every
        )

    def _attaches(self, path: str, props: "Props[Any]", cell: "Cell") -> bool:
        if cell.parent is None:
            return False  # the root of the system
        module = str(getattr(props._factory, "__module__", ""))
        if module == DEVICE_ACTORS:
            return False  # its ops are recorded instead
        if self._patterns is not None:
            return self._selects(path)
        return not module.startswith(OURS)

    def _selects(self, path: str) -> bool:
        return self._patterns is None or any(fnmatch.fnmatchcase(path, pattern) for pattern in self._patterns)

    def attach_device(self, name: str, backend: str, uuid: str) -> "DeviceLog | None":
        """Take a device that a system opens; for the runtime."""
        if self.mode is ReplayMode.OFF:
            return None
        if not self._open:
            raise RuntimeError("the harness is not started: enter it before the system, 'async with harness, system'")
        self._devices += 1
        actor = f"{DEVICES}{self._devices}"
        if not self._selects(actor):
            return None
        if self._devices_script is not None:
            return self._devices_script.attach(actor, name, backend)
        opened = DeviceOpened(actor, name, backend, uuid)
        return DeviceRecorder(opened, self._writer, self._known, *self._arrays, self._redact)

    @property
    def report(self) -> ReplayReport:
        """What a system with a harness in mode ``replay`` has done so far, compared with the recording: its devices.

        Devices of the recording that were not opened are divergences when all others are closed.

        Raises:
            RuntimeError: The harness does not replay, or was not started.
        """
        if self._devices_script is None:
            raise RuntimeError("report is of a harness in mode 'replay', from its start; verify() returns its own")
        return self._devices_script.finish(self._selects)

    # -- values from outside -----------------------------------------------------------------------------------------

    def recall(self, name: str, make: Callable[[], T], as_type: Any = Any) -> T:
        """Return ``make()`` while recording; in a replay, the recorded value, without calling it.

        Args:
            name: Name of the value; values of one name are replayed in their order, per actor.
            make: Returns what msgspec can encode, arrays and complex numbers included.
            as_type: Type to decode to; plain data by default.

        Raises:
            NotRecordable, JournalFailed: While recording.
            ReplayDiverged: In a replay, it was recorded fewer times.
        """
        tap = tap_of_actor()
        if tap is not None:
            recorded: T = tap.recalled(name, make, as_type)
            return recorded
        if self.mode is ReplayMode.REPLAY:
            replayed: T = self._script.recall("", name, as_type)
            return replayed
        found = make()
        if self.mode is ReplayMode.RECORD:
            self._entry_writer.recalled("", name, found)
        return found

    async def recall_async(self, name: str, make: Callable[[], Awaitable[T]], as_type: Any = Any) -> T:
        """Like :meth:`recall`, for a value that must be awaited, such as an answer from the network.

        Exceptions are not recorded.
        """
        tap = tap_of_actor()
        replays = self.mode is ReplayMode.REPLAY if tap is None else not isinstance(tap, RecordingTap)
        value: Any = None if replays else await make()
        found: T = self.recall(name, lambda: value, as_type)
        return found

    def seed(self, name: str = "seed") -> int:
        """A random seed of 63 bits; in a replay the same one."""
        return self.recall(name, lambda: secrets.randbits(63))

    def rng(self, name: str = "seed") -> np.random.Generator:
        """A generator of random numbers that gives the same ones in a replay."""
        return np.random.default_rng(self.seed(name))

    def now(self) -> float:
        """The time of the clock, in seconds; in a replay that of the recording."""
        return self.recall("now", self._clock.time)

    def chooser(self, policy: PlacementPolicy | str | Chooser, name: str = "placement") -> Chooser:
        """A policy for a :class:`.PlacementActor` whose choices are recorded and repeated in a replay.

        A device is known by its id and, on another machine, by its place among those that can take the work.
        """
        choose = chooser_of(policy)

        def chosen(hints: PlacementHints, able: Sequence[Candidate]) -> Candidate:
            def choice() -> list[Any]:
                picked = choose(hints, able)
                return [picked.id, next(n for n, candidate in enumerate(able) if candidate is picked)]

            wanted, place = self.recall(name, choice)
            same = next((candidate for candidate in able if candidate.id == wanted), None)
            return able[min(place, len(able) - 1)] if same is None else same

        return chosen

    def batches(self, function: Callable[[list[Any]], T], name: str) -> Callable[[list[Any]], T]:
        """A batch function, recorded: the items of each batch, their order, and the results.

        For ``DynamicBatchingServer(harness.batches(run, "embed"))``; :meth:`verify` calls the function again with the
        same batches. Async functions stay async.

        Args:
            function: Function of a list of items.
            name: Name in the journal.
        """
        if self.mode is not ReplayMode.RECORD:
            return function
        numbers = self._numbers.setdefault(name, itertools.count(1))
        return recorded_batches(function, BATCHES + name, numbers, self._entry_writer)

    # -- reading -------------------------------------------------------------------------------------------------------

    def entries(
        self, first: int = 1, count: int | None = None, *, actor: str | None = None
    ) -> Iterator[tuple[int, Entry]]:
        """The entries of the journal with their sequences. All that was recorded before is written first.

        That may block the caller for as long as one write; after ``await harness.committed()`` it does not.

        Args:
            first: Sequence to begin with.
            count: Records to read; None: all.
            actor: A pattern of paths: only entries of these actors.

        Raises:
            RuntimeError: The harness is not started.
            TimeoutError: The journal did not take its records within 30 s.
            JournalCorrupt: A record is damaged, or was written by a later version.
        """
        if not self._open:
            raise RuntimeError("the harness is not started: use 'async with harness'")
        with contextlib.suppress(JournalFailed):  # what it took can be read
            self._writer.flush()
        return read_entries(self._journal, first, count, actor)

    def discard(self, before: int) -> None:
        """Allow the journal to delete records below a sequence, such as those before the last snapshots."""
        self._journal.discard(before)

    def _last_run(self, which: int = -1) -> list[tuple[int, Entry]]:
        return run_of(self.entries(), which)

    # -- replaying -----------------------------------------------------------------------------------------------------

    async def replay(
        self,
        build: Build = lambda system: None,
        *,
        run: int = -1,
        batches: Mapping[str, Callable[[list[Any]], Any]] | None = None,
        override: Mapping[int, Any] | None = None,
        from_snapshot: bool = False,
        until: int | None = None,
        patience: float = 10.0,
    ) -> Replay:
        """A replay to go through step by step: ``async with await harness.replay(build) as replay:``.

        Args:
            build: Creates the actors in the system passed to it, as the application did; may be ``async def``. Records
                of actors that are not created are skipped.
            run: Index of the run in the journal; -1 is the last one.
            batches: Batch functions by the names they were recorded under.
            override: Messages (or batches) in place of those of the records of these sequences.
            from_snapshot: Begin at the last snapshot of each actor that has one (before ``until``).
            until: Sequence of the last record to replay.
            patience: Seconds to wait for each output; longer is a divergence.

        Raises:
            ValueError: There is no such run, or ``override`` has a sequence that is no input of it.
        """
        if self.mode is ReplayMode.RECORD:
            await self.committed()
        found = await asyncio.to_thread(self._last_run, run)
        if until is not None:
            found = [(sequence, entry) for sequence, entry in found if sequence <= until]
        inputs = {sequence for sequence, entry in found if isinstance(entry, Input)}
        for sequence in override or {}:
            if sequence not in inputs:
                there = f"from {min(inputs)} to {max(inputs)}" if inputs else "none"
                raise ValueError(
                    f"override has record {sequence}, which is no input of the run; its inputs are {there}"
                )

        def make_codec(resolve_actor: Callable[[str], ActorRef[Any] | None]) -> Codec:
            return self._make_codec(resolve_actor=resolve_actor)

        return Replay(
            found,
            build,
            make_codec,
            self._attaches,
            batches=batches or {},
            override=override or {},
            snapshots=from_snapshot,
            patience=patience,
            devices=lambda report: DeviceScript(found, report, self._tolerances, self._redact),
            to_end=until is None,
        )

    async def verify(self, build: Build = lambda system: None, **options: Any) -> ReplayReport:
        """Replay, up to the first output that differs from the recording.

        Args:
            build, options: See :meth:`replay`.

        Returns:
            The report; ``report.check()`` raises, naming the first divergence.
        """
        async with await self.replay(build, **options) as replay:
            while not replay.report.divergences and await replay.step() is not None:
                pass
        return replay.report

    async def what_if(self, build: Build, override: Mapping[int, Any], **options: Any) -> ReplayReport:
        """Replay to the end with other messages in place of recorded ones, and report all differences.

        Args:
            build, options: See :meth:`replay`.
            override: Messages by the sequence of the record that they replace; consequences are followed to other
                actors.
        """
        async with await self.replay(build, override=override, **options) as replay:
            while await replay.step() is not None:
                pass
        return replay.report


def _mode(given: object) -> ReplayMode:
    modes = [str(mode) for mode in ReplayMode]
    if given not in modes:
        raise ValueError(f"mode is {given!r}; say {' or '.join(map(repr, modes))}; a journal is given as journal=")
    return ReplayMode(given)
