"""The calls and arrays of a program of :mod:`.programs`, and their expected outcome."""

import asyncio
from typing import Any

import numpy as np
from tests.device.residents.recorder import given, updated

import callboard as cb
from callboard.actors.errors import ActorStopped

__all__ = ["Array", "Call", "Use"]

N = 16

OWN: dict[str, type[Exception]] = {
    "answer": cb.ReplyError,
    "resume": OSError,
    "restart": KeyError,
    "exit": cb.RemoteError,
}
"""What a call that fails is answered with."""


class Call:
    """A call that was accepted.

    Attributes:
        cancelled, expired, stopped, killed: What was done while it had no answer.
        late: Its time was over when it was called.
        inherits: It must fail, because a call has failed whose result it reads.
        expected: What the array that it uses must hold, before it.
    """

    def __init__(
        self, number: int, method: str, arguments: tuple[Any, ...], array: "Array | None", killed: bool
    ) -> None:
        self.number = number
        self.method = method
        self.arguments = arguments
        self.array = array
        self.reply: Any = None
        self.cancelled = self.expired = self.late = self.stopped = self.inherits = False
        self.killed = killed
        self.expected: np.ndarray | None = None
        self.value: Any = None
        self.error: Exception | None = None
        self._ended = False

    def __repr__(self) -> str:
        marks = [m for m in ("cancelled", "expired", "late", "stopped", "killed", "inherits") if getattr(self, m)]
        return f"call {self.number} ({self.method} {' '.join(marks)}): {self.error!r}"

    @property
    def writes(self) -> bool:
        return self.array is not None and self.method != "computed"

    async def end(self, bound: float) -> None:
        """Wait for the reply."""
        if self._ended:
            return
        self._ended = True
        try:
            async with asyncio.timeout(bound) as limit:
                self.value = await self.reply
        except Exception as e:
            assert not limit.expired(), f"{self!r} has no answer"
            self.error = e

    def succeeded(self, ran: bool) -> bool:
        """Whether it has done its work in the host, whatever its reply says."""
        return ran and self.method != "fail"

    def check(self, ran: bool) -> None:
        """It ended as it should."""
        if self.error is None:
            assert ran, f"{self!r} was answered and has not run"
            assert not self.inherits, f"{self!r} was answered, and has read what a failed call should have written"
            assert not self.late, f"{self!r} was answered after its time"
            self._check_value()
            return
        allowed: list[type[Exception]] = []
        if self.method == "fail" and ran:
            allowed += [OWN[self.arguments[0]]]
        if self.cancelled and not ran:
            allowed += [cb.Withdrawn]
        if self.expired or (self.late and not ran):
            allowed += [cb.AskTimeout]
        if self.stopped:
            allowed += [ActorStopped]
        if self.killed:
            allowed += [cb.ContextLost]
        if not isinstance(self.error, tuple(allowed)):
            assert self.inherits, f"{self!r}, ran: {ran}"
            assert not ran, f"{self!r} has run"

    def _check_value(self) -> None:
        value = self.value
        match self.method:
            case "short" | "blocked":
                assert value == 3 * self.number + 1
            case "array":
                np.testing.assert_array_equal(value, self.arguments[0] + 1)
            case "keep":
                np.testing.assert_array_equal(value[:-1], given(int(value[-1]), len(value) - 1))
            case "computed":
                assert self.expected is not None
                np.testing.assert_array_equal(value, self.expected)
            case "write":
                assert value is None
            case _:
                raise AssertionError(f"{self!r} has not failed")


class Array:
    """An array of the device, and what was called on it, in order."""

    def __init__(self, dev: cb.Device, value: int) -> None:
        self.dev = dev
        self.ref = dev.put(np.full(N, value, np.int64))
        self.entries: list[Any] = [value]

    def fill(self, value: int) -> None:
        self.dev.fill(self.ref, value)
        self.entries.append(value)

    def read(self) -> None:
        self.entries.append(self.dev.copy(self.ref).get())

    async def end(self) -> None:
        """Wait for what was read."""
        for at, entry in enumerate(self.entries):
            if not isinstance(entry, Call | int):
                try:
                    self.entries[at] = await entry
                except cb.AccelError as e:
                    self.entries[at] = e
                except (ActorStopped, OSError, KeyError) as e:
                    self.entries[at] = e

    def replay(self, ran: set[int]) -> None:
        """Work out what each call must have found; check what was read."""
        contents: np.ndarray | None = None  # it is spoilt
        for entry in self.entries:
            match entry:
                case int():
                    contents = np.full(N, entry, np.int64)
                case Call():
                    entry.inherits = contents is None
                    entry.expected = None if contents is None else contents.copy()
                    if entry.writes and contents is not None:
                        if entry.succeeded(entry.number in ran):
                            updated(contents, entry.number)
                        else:
                            contents = None
                case cb.ContextLost():
                    pass
                case Exception():
                    assert contents is None, f"the array was read with {entry!r}; {self.entries}"
                case _:
                    assert contents is not None, f"{entry} was read of a spoilt array"
                    np.testing.assert_array_equal(entry, contents)


class Use:
    """A stream, and what was taken from it."""

    def __init__(self, stream: Any, number: int, n: int, size: int, calls: list[Call]) -> None:
        self.stream = stream
        self.number = number
        self.n = n
        self.size = size
        self.calls = calls  # of the same actor
        self.taken: list[Any] = []
        self.left = self.over = False
        self.error: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def take(self, n: int) -> None:
        """Begin to take so many items, unless some are being taken."""
        if self.stream is not None and not self.busy and not self.over and self.error is None:
            self._task = asyncio.ensure_future(self._take(self.stream, n))

    async def _take(self, stream: Any, n: int) -> None:
        try:
            for _ in range(n):
                self.taken.append(await anext(stream))
        except StopAsyncIteration:
            self.over = True
        except cb.MailboxFull:
            pass
        except Exception as e:
            self.error = e

    async def cancel(self, bound: float) -> None:
        """Cancel the task that takes items."""
        assert self._task is not None
        self._task.cancel()
        await self.end(bound)

    async def end(self, bound: float) -> None:
        """Wait until the items are taken."""
        if self._task is not None:
            _, waiting = await asyncio.wait([self._task], timeout=bound)
            assert not waiting, f"stream {self.number} has not ended"

    def check(self, killed: bool, ran: set[int]) -> None:
        """The items are those that the generator yielded, from the first on, and it ended as it should."""
        for i, item in enumerate(self.taken):
            np.testing.assert_array_equal(item, given(self.number + i, self.size) if self.size else self.number + i)
        if self.over and not self.left:
            assert len(self.taken) == self.n
        failures = [OWN[call.arguments[0]] for call in self.calls if call.method == "fail" and call.number in ran]
        allowed = (ActorStopped, *failures, *([cb.ContextLost] if killed else []))
        assert self.error is None or isinstance(self.error, allowed), f"stream {self.number}: {self.error!r}"
