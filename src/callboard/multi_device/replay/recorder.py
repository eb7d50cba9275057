"""The recording wrapper of an actor: its inputs and outputs become entries."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from callboard.actors._runtime.recording import InputKind, Tap
from callboard.actors.clock import Clock
from callboard.multi_device.replay.codec import Codec, name_of
from callboard.multi_device.replay.entries import Input, Output, Recalled, Snapshot, encode, encode_input
from callboard.multi_device.replay.errors import NotRecordable
from callboard.multi_device.replay.writer import JournalWriter

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["EntryWriter", "RecordingTap", "recorded_batches"]

T = TypeVar("T")

_log = logging.getLogger("callboard.replay")


class EntryWriter:
    """Makes entries and gives them to the writer.

    Args:
        writer, codec: Destination of the entries, and their encoder.
        clock: Clock of the recorded system.
        strict: Refuse messages that cannot be recorded; otherwise only their class is recorded, with one warning in the
            log.
    """

    def __init__(
        self,
        writer: JournalWriter,
        codec: Codec,
        clock: Clock,
        strict: bool,
    ) -> None:
        self._put = writer.put
        self._codec = codec
        self._time = clock.time
        self._strict = strict
        self._names: dict[type, str] = {}
        self._said: set[str] = set()

    def input(self, actor: str, number: int, kind: InputKind | str, message: Any, detail: int) -> None:
        """Something is about to be handled.

        Raises:
            NotRecordable, JournalFailed: It must not be, then.
        """
        cls = type(message)
        name = self._names.get(cls)
        if name is None:
            name = self._names[cls] = name_of(cls)
        parts = self._codec.parts(message) if cls is list else None
        if parts is not None:
            self._put(encode_input(actor, number, kind, name, parts, self._time(), detail))
            return
        try:
            data = self._codec.encode(message)
        except NotRecordable as e:
            if self._strict:
                raise
            data = b""
            if name not in self._said:
                self._said.add(name)
                _log.warning("%s: %s; its class is recorded only, so a replay stops there", actor, e)
        self._put(encode(Input(actor, number, kind, name, data, self._time(), detail)))

    def output(self, actor: str, number: int, kind: str, to: str, value: Any) -> None:
        """An input had an output."""
        name, data = self._codec.output(value)
        self._put(encode(Output(actor, number, kind, to, name, data, self._time())))

    def recalled(self, actor: str, name: str, value: Any) -> None:
        """A value from outside was recalled."""
        self._put(encode(Recalled(actor, name, self._codec.encode(value))))

    def snapshot(self, actor: str, number: int, take: Callable[[], Any]) -> None:
        """The state of an actor between two inputs; left out, with a warning in the log, if it fails and not strict.

        Raises:
            Exception: Raised by ``take``, or of a state that cannot be recorded.
            JournalFailed
        """
        try:
            state = take()
            data = self._codec.encode(state)
        except Exception as e:  # of any class: ``take`` is a user's
            if self._strict:
                raise
            _log.warning("%s: no snapshot after input %d: %r", actor, number, e)
            return
        self._put(encode(Snapshot(actor, number, name_of(type(state)), data)))


def recorded_batches(
    function: Callable[[list[Any]], T], path: str, numbers: Iterator[int], entry_writer: EntryWriter
) -> Callable[[list[Any]], T]:
    """A batch function whose items and results are recorded.

    Args:
        function: The function; an async one stays async.
        path: Its name in the journal.
        numbers: Numbers of its batches.
        entry_writer: Receives the entries.
    """

    def begun(items: list[Any]) -> int:
        number = next(numbers)
        entry_writer.input(path, number, "batch", items, 0)
        return number

    async def awaited(number: int, value: Awaitable[Any]) -> Any:
        try:
            found = await value
        except Exception as e:  # of any class: it is passed on
            entry_writer.output(path, number, "error", "", e)
            raise
        entry_writer.output(path, number, "reply", "", found)
        return found

    @functools.wraps(function)
    def call(items: list[Any]) -> Any:
        number = begun(items)
        try:
            value = function(items)
        except Exception as e:  # likewise
            entry_writer.output(path, number, "error", "", e)
            raise
        if isinstance(value, Awaitable):
            return awaited(number, value)
        entry_writer.output(path, number, "reply", "", value)
        return value

    if asyncio.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(items: list[Any]) -> Any:
            return await call(items)

        return cast("Callable[[list[Any]], T]", call_async)
    return call


class RecordingTap(Tap):
    """Reports one actor to a entry_writer.

    Args:
        path, cell: See :class:`.Tap`.
        entry_writer: Receives the reports.
        snapshot_every: Inputs between two snapshots; None: none are taken.
    """

    def __init__(self, path: str, cell: "Cell", entry_writer: EntryWriter, snapshot_every: int | None) -> None:
        super().__init__(path, cell)
        self._entry_writer = entry_writer
        self._every = snapshot_every

    def received(self, kind: InputKind, message: Any, detail: int) -> None:
        before = self.count - 1
        if self._every is not None and before and before % self._every == 0:
            take = getattr(self.cell.actor, "snapshot", None)
            if take is not None:
                self._entry_writer.snapshot(self.path, before, take)
        self._entry_writer.input(self.path, self.count, kind, message, detail)

    def replied(self, number: int, value: Any) -> None:
        self._entry_writer.output(self.path, number, "reply", "", value)

    def failed(self, number: int, error: BaseException) -> None:
        self._entry_writer.output(self.path, number, "error", "", error)

    def sent(self, to: str, message: Any) -> None:
        self._entry_writer.output(self.path, self.count, "sent", to, message)

    def refused(self, to: str) -> None:
        self._entry_writer.output(self.path, self.count, "refused", to, None)

    def recalled(self, name: str, make: Callable[[], Any], as_type: Any) -> Any:
        value = make()
        self._entry_writer.recalled(self.path, name, value)
        return value
